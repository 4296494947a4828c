/** The panel at the left: a row of tabs, and what the open one shows. */

import { ReactWidget } from '@jupyterlab/ui-components';
import React, { useEffect, useReducer, useRef } from 'react';

import { cloudIcon } from './icons';
import type { Tabs } from './tabs';
import type { ITab } from './tokens';
import type { Watch } from './watch';
import type { Translate } from './words';

export class Panel extends ReactWidget {
  constructor(
    readonly tabs: Tabs,
    readonly watch: Watch,
    readonly _: Translate
  ) {
    super();
    this.id = 'jupyter-sky-panel';
    this.addClass('jsky-Panel');
    this.title.icon = cloudIcon;
    this.title.caption = _('Sky: clusters, runs and costs');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', _('Sky'));
  }

  protected render(): JSX.Element {
    return <Frame tabs={this.tabs} watch={this.watch} _={this._} />;
  }
}

/** Draws anew when a signal is emitted. */
export function useSignal(signal: { connect: Function; disconnect: Function }): void {
  const [, again] = useReducer((n: number) => n + 1, 0);
  useEffect(() => {
    signal.connect(again);
    return () => signal.disconnect(again);
  }, [signal]);
}

function Frame({ tabs, _ }: { tabs: Tabs; watch: Watch; _: Translate }): JSX.Element {
  useSignal(tabs.changed);
  const current = tabs.current;
  const row = useRef<HTMLDivElement>(null);
  const move = (event: React.KeyboardEvent) => {
    const shown = tabs.shown;
    const at = shown.findIndex(tab => tab === current);
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -at, End: shown.length - 1 - at }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = shown[(at + step + shown.length) % shown.length];
    tabs.choose(next.id);
    row.current?.querySelector<HTMLElement>(`#jsky-tab-${next.id}`)?.focus();
  };
  return (
    <>
      <div className="jsky-Panel-tabs" role="tablist" ref={row} onKeyDown={move}>
        {tabs.shown.map(tab => (
          <button
            key={tab.id}
            id={`jsky-tab-${tab.id}`}
            className="jsky-Panel-tab"
            role="tab"
            aria-selected={tab === current}
            aria-controls="jsky-tabpanel"
            tabIndex={tab === current ? 0 : -1}
            onClick={() => tabs.choose(tab.id)}
          >
            {tab.label}
          </button>
        ))}
      </div>
      {current ? (
        <Mounted key={current.id} tab={current} />
      ) : (
        <p className="jsky-Panel-empty">{_('All tabs are hidden in the settings of Sky.')}</p>
      )}
    </>
  );
}

function Mounted({ tab }: { tab: ITab }): JSX.Element {
  const host = useRef<HTMLDivElement>(null);
  useEffect(() => tab.mount(host.current!), [tab]);
  return (
    <div
      id="jsky-tabpanel"
      className="jsky-Panel-body"
      role="tabpanel"
      aria-labelledby={`jsky-tab-${tab.id}`}
      ref={host}
    />
  );
}
