import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { form } from './form';
import { shell } from './shell';
import { views } from './views';

// Each part of the face is one plugin in a file of its own.
const plugins: JupyterFrontEndPlugin<any>[] = [shell, views, form];

export default plugins;
