/** Tab of help: a search over the guide, verbs and public names, and one page of it. */

import React, { useEffect, useRef, useState } from 'react';

import { IHelpEntry, IHelpPage } from './api';
import type { IView } from './clusters';
import { Action, Problem, useAnswer, useSettled } from './components';
import type { Translate } from './format';

/** Search and page, kept while the tab is hidden. */
export interface IHelpMemory {
  query: string;
  page: IHelpEntry | null;
}

export function Help({ view, asked }: { view: IView; asked: IHelpMemory }): JSX.Element {
  const { _ } = view;
  const [query, setQuery] = useState(asked.query);
  const [page, setPage] = useState(asked.page);
  const [clicked, setClicked] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    // an error has asked for its page
    setQuery(asked.query);
    setPage(asked.page);
  }, [asked]);
  useEffect(() => void Object.assign(asked, { query, page }), [asked, query, page]);
  const open = (entry: IHelpEntry) => {
    setClicked(true);
    setPage(entry);
  };
  const back = () => {
    setPage(null);
    field.current?.focus();
  };
  return (
    <>
      <form className="jsky-Panel-form" role="search" onSubmit={event => event.preventDefault()}>
        <label>
          {_('Search guide, verbs and functions')}
          <input
            ref={field}
            type="search"
            value={query}
            placeholder={_('budget, plan, spot…')}
            onChange={event => {
              setQuery(event.target.value);
              setPage(null);
            }}
          />
        </label>
      </form>
      {page ? (
        <HelpPage
          key={`${page.kind} ${page.name}`}
          entry={page}
          view={view}
          takesFocus={clicked}
          back={back}
        />
      ) : (
        <Results query={query} view={view} open={open} />
      )}
    </>
  );
}

function kindOf(kind: IHelpEntry['kind'], _: Translate): string {
  switch (kind) {
    case 'guide':
      return _('Guide');
    case 'verb':
      return _('Verbs');
    default:
      return _('In Python');
  }
}

const KINDS = ['guide', 'verb', 'name'] as const;

function Results(props: {
  query: string;
  view: IView;
  open: (page: IHelpEntry) => void;
}): JSX.Element {
  const { view, open } = props;
  const { _ } = view;
  const query = useSettled(props.query.trim(), 250);
  const [answer, problem, again] = useAnswer(() => view.poller.api.searchHelp(query), [query]);
  if (problem) return <Problem error={problem} retry={again} _={_} />;
  if (!answer) return <p className="jsky-Panel-quiet">{_('Looking…')}</p>;
  const { pages } = answer;
  return (
    <>
      <p className="jsky-Panel-hidden" role="status">
        {pages.length === 1 ? _('1 page') : _('%1 pages', pages.length)}
      </p>
      {pages.length ? null : <p className="jsky-Panel-quiet">{_('No page has these words.')}</p>}
      {KINDS.map(kind => {
        const rows = pages.filter(page => page.kind === kind);
        const title = kindOf(kind, _);
        return rows.length ? (
          <section key={kind} aria-label={title}>
            <h3 className="jsky-Panel-group">{title}</h3>
            <ul className="jsky-Panel-list" aria-label={title}>
              {rows.map(page => (
                <li key={page.name}>
                  <button type="button" className="jsky-Help-entry" onClick={() => open(page)}>
                    <b>{kind === 'guide' ? page.title : page.name}</b>
                    <span className="jsky-Panel-quiet">{page.summary}</span>
                  </button>
                </li>
              ))}
            </ul>
          </section>
        ) : null;
      })}
    </>
  );
}

function HelpPage(props: {
  entry: IHelpEntry;
  view: IView;
  takesFocus: boolean; // the button that opened it is gone
  back: () => void;
}): JSX.Element {
  const { entry, view, takesFocus, back } = props;
  const { actions, poller, _ } = view;
  const { kind, name } = entry;
  const all = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (takesFocus) all.current?.focus();
  }, [takesFocus]);
  const [page, problem, again] = useAnswer<IHelpPage>(
    () => poller.api.helpPage(kind, name),
    [kind, name]
  );
  const title = page?.title ?? entry.title;
  return (
    <div ref={all} tabIndex={-1} role="region" aria-label={title}>
      <p className="jsky-Panel-actions jsky-Help-actions">
        <Action label={_('Back')} act={back} />
        {kind === 'guide' ? (
          <Action
            label={_('Open the notebook')}
            about={title}
            act={() => void actions.openGuide(name)}
          />
        ) : null}
      </p>
      {problem ? <Problem error={problem} retry={again} _={_} /> : null}
      {page && !problem ? (
        <>
          <h3 className="jsky-Help-title">{title}</h3>
          {kind === 'guide' ? (
            <GuideText text={page.text} />
          ) : (
            <pre className="jsky-Help-text">{page.text}</pre>
          )}
        </>
      ) : null}
    </div>
  );
}

/** Text of a page of the guide: paragraphs, and code that is indented or between fences. */
function GuideText({ text }: { text: string }): JSX.Element {
  const blocks: { code: boolean; text: string }[] = [];
  for (const part of text.split('\n\n')) {
    const code = /^( {4}|```)/.test(part);
    const last = blocks[blocks.length - 1];
    if (code && last?.code) last.text += `\n\n${part}`;
    else blocks.push({ code, text: part });
  }
  return (
    <div className="jsky-Help-guide">
      {blocks.map((block, at) =>
        block.code ? (
          <pre key={at} className="jsky-Panel-code" tabIndex={0}>
            {block.text.replace(/^ {4}|^```.*\n?/gm, '')}
          </pre>
        ) : (
          <p key={at}>
            {block.text.split('`').map((piece, n) => (n % 2 ? <code key={n}>{piece}</code> : piece))}
          </p>
        )
      )}
    </div>
  );
}
