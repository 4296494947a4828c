import { LabIcon } from '@jupyterlab/ui-components';

import cloud from '../style/cloud.svg';

export const cloudIcon = new LabIcon({ name: 'jupyter-sky:cloud', svgstr: cloud });
