/** The item in the status bar, as a widget of JupyterLab. */

import { ReactWidget } from '@jupyterlab/ui-components';
import React from 'react';

import { cloudIcon } from './icons';
import { StatusSummary } from './statusItem';
import type { StatePoller } from './statePoller';
import type { Translate } from './format';

export class StatusItem extends ReactWidget {
  constructor(
    readonly poller: StatePoller,
    readonly open: () => void,
    readonly _: Translate
  ) {
    super();
    this.addClass('jsky-StatusItem');
  }

  protected render(): JSX.Element {
    const icon = <cloudIcon.react tag="span" className="jsky-StatusItem-icon" />;
    return <StatusSummary poller={this.poller} icon={icon} open={this.open} _={this._} />;
  }
}
