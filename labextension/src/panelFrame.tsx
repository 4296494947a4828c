/** Frame of the panel: tabs, result of the last action, and the open tab. */

import React, { useEffect, useReducer, useRef } from 'react';

import { Clusters, IView } from './clusters';
import { Help, IHelpMemory } from './help';
import { IOfferQuery, Offers } from './offers';
import { Action, Problem, useSignal } from './components';
import { Runs } from './runs';
import type { Tabs } from './tabs';
import type { ITab } from './tokens';
import { VERSION } from './version';

/** State that is kept while a tab or the panel is hidden. */
export interface IMemory {
  open: Set<string>;
  asked: IOfferQuery;
  help: IHelpMemory;
}

export function PanelFrame(props: { tabs: Tabs; view: IView; memory: IMemory }): JSX.Element {
  const { tabs, view, memory } = props;
  const { actions, _ } = view;
  useSignal(tabs.changed);
  useSignal(actions.changed);
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const current = tabs.current;
  const readGuide = (name: string) => {
    memory.help = { query: '', page: { kind: 'guide', name, title: name, summary: '' } };
    tabs.choose('help');
    redraw();
  };
  return (
    <>
      <TabBar tabs={tabs} />
      <p className={`jsky-Panel-message${actions.message?.failed ? ' jsky-mod-bad' : ''}`} role="status">
        {actions.message ? (
          <>
            <b>{actions.message.text}</b> {actions.message.hint}
            {actions.message.guide ? (
              <Action label={_('Guide')} act={() => readGuide(actions.message!.guide)} />
            ) : null}
            <Action label={_('Dismiss')} act={() => actions.say('')} />
          </>
        ) : null}
      </p>
      {current ? (
        <TabContent key={current.id} tab={current} view={view} memory={memory} />
      ) : (
        <p className="jsky-Panel-empty">{_('All tabs are hidden in the settings of Sky.')}</p>
      )}
    </>
  );
}

function TabBar({ tabs }: { tabs: Tabs }): JSX.Element {
  const row = useRef<HTMLDivElement>(null);
  const { current, shown } = tabs;
  const move = (event: React.KeyboardEvent) => {
    const at = shown.findIndex(tab => tab === current);
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -at, End: shown.length - 1 - at }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = shown[(at + step + shown.length) % shown.length];
    tabs.choose(next.id);
    row.current?.querySelector<HTMLElement>(`#jsky-tab-${next.id}`)?.focus();
  };
  return (
    <div className="jsky-Panel-tabs" role="tablist" ref={row} onKeyDown={move}>
      {shown.map(tab => (
        <button
          key={tab.id}
          id={`jsky-tab-${tab.id}`}
          className={`jsky-Panel-tab${tab.sign ? ' jsky-mod-sign' : ''}`}
          type="button"
          role="tab"
          aria-selected={tab === current}
          aria-controls={tab === current ? 'jsky-tabpanel' : undefined}
          tabIndex={tab === current ? 0 : -1}
          aria-label={tab.sign ? tab.label : undefined}
          title={tab.sign ? tab.label : undefined}
          onClick={() => tabs.choose(tab.id)}
        >
          {tab.sign ?? tab.label}
        </button>
      ))}
    </div>
  );
}

function TabContent(props: { tab: ITab; view: IView; memory: IMemory }): JSX.Element {
  const { tab, view, memory } = props;
  const { poller, _ } = view;
  const host = useRef<HTMLDivElement>(null);
  useSignal(poller.changed);
  useEffect(() => tab.mount?.(host.current!), [tab]);
  const { problem, state } = poller;
  const retry = () => void poller.refresh();
  const ours: Record<string, () => JSX.Element> = {
    clusters: () => <Clusters view={view} open={memory.open} />,
    runs: () => <Runs view={view} />,
    offers: () => <Offers view={view} asked={memory.asked} />,
    help: () => <Help view={view} asked={memory.help} />
  };
  const needsState = tab.id === 'clusters' || tab.id === 'runs';
  return (
    <div
      id="jsky-tabpanel"
      className="jsky-Panel-body"
      role="tabpanel"
      aria-labelledby={`jsky-tab-${tab.id}`}
      tabIndex={-1}
    >
      {problem && needsState ? <Problem error={problem} retry={retry} _={_} /> : null}
      <VersionWarning server={state?.version} view={view} />
      {state?.notices.map(notice => (
        <p key={notice} className="jsky-Panel-notice" role="status">
          {notice}
        </p>
      ))}
      {tab.mount ? <div ref={host} /> : null}
      {needsState && !state ? (
        problem ? null : (
          <p className="jsky-Panel-quiet">{_('Asking the server…')}</p>
        )
      ) : (
        ours[tab.id]?.()
      )}
    </div>
  );
}

/** Says it when the page and the server are of different versions. */
function VersionWarning({ server, view }: { server?: string; view: IView }): JSX.Element | null {
  const { _ } = view;
  if (!server || server === VERSION) return null;
  return (
    <p className="jsky-Panel-notice" role="status">
      {_('This page has jupyter_sky %1, the server %2.', VERSION, server)}{' '}
      {_('Reload the page; if that does not help, restart the Jupyter server.')}
    </p>
  );
}
