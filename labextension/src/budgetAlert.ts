/** Alerts about the budget of a day. */

import type { IState } from './api';
import { money, Translate } from './format';

const WARN = 0.8;

/** Alert for a budget that runs short or is spent; null below 80 %. */
export function budgetAlert(today: IState['today'], _: Translate): { key: string; text: string } | null {
  const { usd, budget, over } = today;
  if (budget === null || budget === undefined) return null;
  const words = [money(usd, _), money(budget, _)];
  if (over) {
    const text = _(
      "Today's budget is spent: %1 of %2. What costs is being stopped, and its clusters end.",
      ...words
    );
    return { key: 'over', text };
  }
  if (usd === null || !budget || usd < WARN * budget) return null;
  const share = Math.floor((100 * usd) / budget + 1e-6);
  const text = _(
    "%3 % of today's budget is spent: %1 of %2. At 100 % cells are stopped and clusters end.",
    ...words,
    share
  );
  return { key: 'warn', text };
}
