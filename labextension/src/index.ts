import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { shell } from './shell';

// Each part of the face is one plugin in a file of its own.
const plugins: JupyterFrontEndPlugin<any>[] = [shell];

export default plugins;
