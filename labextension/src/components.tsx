/** Components shared by the tabs. */

import type { LabIcon } from '@jupyterlab/ui-components';
import React, { useEffect, useId, useReducer, useState } from 'react';

import type { SkyError } from './api';
import type { IMark } from './selectors';
import type { Translate } from './format';

/** Components shared by the tabs. */
export interface ISignalLike {
  connect(slot: () => void): unknown;
  disconnect(slot: () => void): unknown;
}

/** Draws anew when a signal is emitted. */
export function useSignal(signal: ISignalLike): void {
  const [, again] = useReducer((n: number) => n + 1, 0);
  useEffect(() => {
    signal.connect(again);
    return () => void signal.disconnect(again);
  }, [signal]);
}

/** Draws anew every second while `ticking`. */
export function useTick(ticking: boolean): void {
  const [, again] = useReducer((n: number) => n + 1, 0);
  useEffect(() => {
    if (!ticking) return undefined;
    const timer = setInterval(() => document.hidden || again(), 1000);
    return () => clearInterval(timer);
  }, [ticking]);
}

/** A value that follows another when that has not changed for a while. */
export function useSettled<T>(value: T, milliseconds: number): T {
  const [settled, settle] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => settle(value), milliseconds);
    return () => clearTimeout(timer);
  }, [value, milliseconds]);
  return settled;
}

/** Answer to a question that may change before it comes, its failure, and a call to ask again. */
export function useAnswer<T>(
  ask: () => Promise<T>,
  of: unknown[]
): [T | null, SkyError | null, () => void] {
  const [answer, setAnswer] = useState<T | null>(null);
  const [problem, setProblem] = useState<SkyError | null>(null);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let late = false;
    ask().then(
      found => {
        if (late) return;
        setAnswer(found);
        setProblem(null);
      },
      error => late || setProblem(error)
    );
    return () => {
      late = true;
    };
  }, [...of, turn]);
  return [answer, problem, () => setTurn(turn + 1)];
}

/** A button that, when it cannot be used, stays reachable and says why. */
export function Action(props: {
  label: string;
  about?: string; // the action's object, for screen readers
  why?: string;
  danger?: boolean;
  icon?: LabIcon; // shown instead of the label, which is then a tooltip
  expanded?: boolean; // of a button that shows and hides something
  act: () => void;
}): JSX.Element {
  const { label, about, why, danger, icon, expanded, act } = props;
  const kind = `${icon ? ' jsky-mod-icon' : ''}${danger ? ' jsky-mod-danger' : ''}`;
  const id = useId();
  return (
    <>
      <button
        type="button"
        className={`jsky-Panel-button${kind}`}
        aria-label={about ? `${label}: ${about}` : icon ? label : undefined}
        aria-expanded={expanded}
        aria-disabled={why ? true : undefined}
        aria-describedby={why ? id : undefined}
        title={(icon ? [label, why] : [why]).filter(Boolean).join('\n') || undefined}
        onClick={event => {
          event.stopPropagation();
          if (!why) act();
        }}
      >
        {icon ? <icon.react tag="span" width="16px" height="16px" /> : label}
      </button>
      {why ? (
        <span id={id} className="jsky-Panel-hidden">
          {why}
        </span>
      ) : null}
    </>
  );
}

export function Mark({ mark }: { mark: IMark }): JSX.Element {
  return (
    <span className={`jsky-Panel-mark jsky-mod-${mark.tone}`}>
      <span aria-hidden="true">{mark.sign}</span> {mark.word}
    </span>
  );
}

/** Details in a line that breaks only between them. */
export function DetailList({ details }: { details: string[] }): JSX.Element {
  const known = details.filter(Boolean);
  return (
    <span className="jsky-DetailList">
      {known.map((fact, at) => (
        <span key={at}>{at < known.length - 1 ? `${fact} · ` : fact}</span>
      ))}
    </span>
  );
}

/** Error message with its hint and a button for the remedy. */
export function Problem(props: {
  error: SkyError;
  retry: () => void;
  _: Translate;
}): JSX.Element {
  const { error, retry, _ } = props;
  const expired = error.kind === 'expired';
  return (
    <div className="jsky-Panel-problem" role="alert">
      <b>{error.message}</b>
      {error.hint ? <p>{error.hint}</p> : null}
      <Action
        label={expired ? _('Reload the page') : _('Try again')}
        act={expired ? () => window.location.reload() : retry}
      />
    </div>
  );
}

/** Content of an empty tab: its purpose and an example. */
export function Empty(props: {
  text: string;
  example: string;
  why: string;
  insert: (line: string) => void;
  _: Translate;
}): JSX.Element {
  const { text, example, why, insert, _ } = props;
  return (
    <div className="jsky-Panel-empty">
      <p>{text}</p>
      <pre className="jsky-Panel-code">{example}</pre>
      <Action label={_('Insert cell')} why={why} act={() => insert(example)} />
    </div>
  );
}
