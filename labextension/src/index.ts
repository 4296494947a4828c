import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { card } from './card';
import { logs } from './logs';
import { form } from './form';
import { shell } from './shell';
import { views } from './views';

// Each part of the face is one plugin in a file of its own.
const plugins: JupyterFrontEndPlugin<any>[] = [shell, views, form, card, logs];

export default plugins;
