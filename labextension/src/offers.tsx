/** Tab of offers: those that can be launched now come first, each group by price. */

import { addIcon } from '@jupyterlab/ui-components';
import React, { useEffect, useState } from 'react';

import { IOffer, IOffers } from './api';
import type { IView } from './clusters';
import { Action, Problem, useAnswer, useSettled, useSignal } from './components';
import { gib, rate, Translate, vcpus } from './format';

const LIMIT = 20;

/** Last query, kept while the tab is hidden. */
export interface IOfferQuery {
  what: string;
  region: string;
  spot: boolean;
}

export function Offers({ view, asked }: { view: IView; asked: IOfferQuery }): JSX.Element {
  const { actions, _ } = view;
  useSignal(actions.changed);
  const [query, setQuery] = useState<IOfferQuery>({ ...asked });
  // a new object each time: React compares states by identity
  const change = (part: Partial<IOfferQuery>) => setQuery(before => ({ ...before, ...part }));
  useEffect(() => void Object.assign(asked, query), [asked, query]);
  const [answer, problem, again] = useOffers(view, useSettled(query, 250));
  return (
    <>
      <form className="jsky-Panel-form" role="search" onSubmit={event => event.preventDefault()}>
        <label>
          {_('GPU or instance type')}
          <input
            type="search"
            value={query.what}
            placeholder={_('A100:8, T4, m5.large…')}
            onChange={event => change({ what: event.target.value })}
          />
        </label>
        <label>
          {_('Region')}
          <input
            type="search"
            value={query.region}
            placeholder={_('any, eu, us-east-1…')}
            onChange={event => change({ region: event.target.value })}
          />
        </label>
        <label className="jsky-Panel-check">
          <input
            type="checkbox"
            checked={query.spot}
            onChange={event => change({ spot: event.target.checked })}
          />
          {_('Spot: cheaper, may be taken away at any time')}
        </label>
      </form>
      {problem ? <Problem error={problem} retry={again} _={_} /> : null}
      {answer && !problem ? <OfferList answer={answer} view={view} /> : null}
      {!answer && !problem ? <p className="jsky-Panel-quiet">{_('Looking…')}</p> : null}
    </>
  );
}

function useOffers(view: IView, query: IOfferQuery): ReturnType<typeof useAnswer<IOffers>> {
  const asked = {
    what: query.what.trim(),
    region: query.region.trim(),
    spot: query.spot,
    limit: LIMIT
  };
  return useAnswer(() => view.poller.api.offers(asked), [query]);
}

const TIERS = ['now', 'account', 'never'] as const;

/** Heading of the offers of a tier. */
function tierTitle(tier: IOffer['launch'], _: Translate): string {
  switch (tier) {
    case 'now':
      return _('Can be launched now');
    case 'account':
      return _('Need an account: run %sky check in a cell');
    default:
      return _('Cannot be launched from here');
  }
}

function OfferList({ answer, view }: { answer: IOffers; view: IView }): JSX.Element {
  const { _ } = view;
  const { offers } = answer;
  const notes = answer.notes.filter(note => !note.includes('to_pandas')); // for notebooks only
  const origins = [...new Set(offers.map(offer => offer.origin).filter(Boolean))];
  return (
    <>
      <p className="jsky-Panel-quiet" role="status">
        {countText(answer, _)}
      </p>
      {TIERS.map(tier => {
        const rows = offers.filter(offer => offer.launch === tier);
        const title = tierTitle(tier, _);
        return rows.length ? (
          <section key={tier} aria-label={title}>
            <h3 className="jsky-Panel-group">{title}</h3>
            <ul className="jsky-Panel-list" aria-label={title}>
              {rows.map(offer => (
                <OfferRow key={keyOf(offer)} offer={offer} view={view} />
              ))}
            </ul>
          </section>
        ) : null;
      })}
      {origins.length ? (
        <p className="jsky-Panel-quiet">{_('Prices: %1', origins.join('; '))}</p>
      ) : null}
      {notes.map(note => (
        <p key={note} className="jsky-Panel-quiet">
          {note}
        </p>
      ))}
    </>
  );
}

function keyOf({ cloud, region, instance_type, spot, price }: IOffer): string {
  return [cloud, region, instance_type, spot, price].join(' ');
}

/** Number of offers above the table. */
export function countText({ offers, total, popular }: IOffers, _: Translate): string {
  if (!total) return _('Nothing fits: ask for less, or leave out the region.');
  if (popular) return _('Popular GPUs, the cheapest offer of each');
  const all = total.toLocaleString('en-US');
  if (total > offers.length) return _('%1 of %2 offers', offers.length, all);
  return total === 1 ? _('1 offer') : _('%1 offers', all);
}

/** Offer in two lines: machine and price, place and size; the tooltip has all of it. */
function OfferRow({ offer, view }: { offer: IOffer; view: IView }): JSX.Element {
  const { actions, _ } = view;
  const { instance_type, cloud, region, launch, obstacle, note } = offer;
  const name = machine(offer).join(' · ');
  const place = [cloud, region].filter(Boolean).join(' ');
  const facts = [offer.spot ? _('spot') : '', place, ...size(offer, _)].filter(Boolean).join(' · ');
  const origin = offer.origin_detail || offer.origin;
  const tooltip = [name, facts, origin && _('Price: %1.', origin), note, obstacle];
  return (
    <li className="jsky-Row jsky-Offer" title={tooltip.filter(Boolean).join('\n')}>
      <span className="jsky-Row-line">{name}</span>
      <span className="jsky-Row-figure">{rate(offer.price, _)}</span>
      <span className="jsky-Row-line jsky-Row-facts jsky-Panel-quiet">{facts}</span>
      {launch === 'never' ? null : (
        <span className="jsky-Row-actions">
          <Action
            label={_('Insert cell')}
            about={`${instance_type} ${cloud} ${region}`}
            icon={addIcon}
            why={actions.noCellReason()}
            act={() => void actions.insert(`%%sky ${offer.line}`)}
          />
        </span>
      )}
    </li>
  );
}

function size({ cpus, memory }: IOffer, _: Translate): string[] {
  return [cpus === null ? '' : vcpus(cpus, _), memory === null ? '' : gib(memory, _)];
}

/** Accelerators and type; some types name their accelerators. */
function machine({ gpus, instance_type }: IOffer): string[] {
  return [instance_type.includes(gpus) ? '' : gpus, instance_type].filter(Boolean);
}
