import { LabIcon } from '@jupyterlab/ui-components';

import cloud from '../style/cloud.svg';

export const cloudIcon = new LabIcon({ name: 'jupyter-sky:cloud', svgstr: cloud });

/** The same as a picture, in a blue that is seen on light and on dark pages. */
export const cloudUrl = `data:image/svg+xml,${encodeURIComponent(cloud.replace('#616161', '#1e88e5'))}`;
