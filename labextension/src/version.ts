import { version } from '../package.json';

/** Of this page; the same as that of the Python package that it was built with. */
export const VERSION: string = version;
