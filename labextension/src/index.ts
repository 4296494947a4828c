import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { card } from './card';
import { logs } from './logs';
import { shell } from './shell';

// Each part of the face is one plugin in a file of its own.
const plugins: JupyterFrontEndPlugin<any>[] = [shell, card, logs];

export default plugins;
