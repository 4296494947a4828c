/** The panel at the left, as a widget of JupyterLab. */

import { ReactWidget } from '@jupyterlab/ui-components';
import React from 'react';

import type { IView } from './clusters';
import { PanelFrame, IMemory } from './panelFrame';
import { cloudIcon } from './icons';
import type { Tabs } from './tabs';

export class Panel extends ReactWidget {
  constructor(
    readonly tabs: Tabs,
    readonly view: IView
  ) {
    super();
    const { _ } = view;
    this.id = 'jupyter-sky-panel';
    this.addClass('jsky-Panel');
    this.title.icon = cloudIcon;
    this.title.caption = _('Sky: clusters, runs and costs');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', _('Sky'));
    view.actions.isPanelVisible = () => this.isVisible;
  }

  protected render(): JSX.Element | null {
    // A hidden panel sends no requests and runs no timers.
    if (!this.isVisible) return null;
    return <PanelFrame tabs={this.tabs} view={this.view} memory={this.memory} />;
  }

  protected onAfterShow(): void {
    this.update();
  }

  protected onAfterHide(): void {
    this.update();
  }

  protected onActivateRequest(): void {
    // The tabs are drawn a moment after the panel is shown.
    requestAnimationFrame(() =>
      this.node.querySelector<HTMLElement>('[role=tab][aria-selected=true]')?.focus()
    );
  }

  private memory: IMemory = {
    open: new Set(),
    asked: { what: '', region: '', spot: false },
    help: { query: '', page: null }
  };
}
