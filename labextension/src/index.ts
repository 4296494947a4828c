import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { bags } from './bags';
import { card } from './card';
import { cost } from './cost';
import { examples } from './examples';
import { form } from './form';
import { logs } from './logs';
import { shell } from './panelPlugin';
import { pipelines } from './pipelines';
import { search } from './search';
import { views } from './views';

// Each part of the face is one plugin in a file of its own.
const plugins: JupyterFrontEndPlugin<any>[] = [
  ...[shell, views, form, card, logs],
  ...[pipelines, bags, search, cost, examples]
];

export default plugins;
