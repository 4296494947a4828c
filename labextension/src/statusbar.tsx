/** The item in the status bar, as a widget of JupyterLab. */

import { ReactWidget } from '@jupyterlab/ui-components';
import React from 'react';

import { cloudIcon } from './icons';
import { Item } from './item';
import type { Watch } from './watch';
import type { Translate } from './words';

export class StatusItem extends ReactWidget {
  constructor(
    readonly watch: Watch,
    readonly open: () => void,
    readonly _: Translate
  ) {
    super();
    this.addClass('jsky-StatusItem');
  }

  protected render(): JSX.Element {
    const icon = <cloudIcon.react tag="span" className="jsky-StatusItem-icon" />;
    return <Item watch={this.watch} icon={icon} open={this.open} _={this._} />;
  }
}
