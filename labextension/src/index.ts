import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { cost } from './cost';
import { shell } from './shell';

// Each part of the face is one plugin in a file of its own.
const plugins: JupyterFrontEndPlugin<any>[] = [shell, cost];

export default plugins;
