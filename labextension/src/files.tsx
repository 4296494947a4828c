/** Files of a cluster: a list of one folder at a time, each with its download. */

import React, { useEffect, useState } from 'react';

import type { ICluster, IFiles } from './api';
import type { IView } from './clusters';
import { Action } from './components';
import { bytes, when } from './format';

/** The folder above a path below the cluster's folder; `''` is that folder itself. */
export function above(path: string): string {
  return path.split('/').slice(0, -1).join('/');
}

export function Files({ cluster, view }: { cluster: ICluster; view: IView }): JSX.Element | null {
  const [opened, setOpened] = useState(false);
  if (cluster.state !== 'up') return null;
  const { _ } = view;
  return (
    <div className="jsky-Files">
      <Action
        label={opened ? _('Hide files') : _('Files')}
        about={cluster.name}
        act={() => setOpened(!opened)}
      />
      {opened ? <Folder cluster={cluster} view={view} /> : null}
    </div>
  );
}

function Folder({ cluster, view }: { cluster: ICluster; view: IView }): JSX.Element {
  const { poller, _ } = view;
  const [path, setPath] = useState('');
  const [found, setFound] = useState<IFiles | string>(_('Asking its nodes…'));
  const [asked, again] = useState(0);
  useEffect(() => {
    let gone = false;
    poller.api
      .files(cluster.name, path)
      .catch(error => String(error.message))
      .then(answer => gone || setFound(answer));
    return () => {
      gone = true;
    };
  }, [cluster.name, cluster.created, path, asked]);
  const title = path ? `${cluster.name}/${path}` : cluster.name;
  return (
    <section aria-label={_('Files of %1', title)}>
      <p className="jsky-Files-path">
        <code>{path || '.'}</code>{' '}
        {path ? <Action label={_('Up')} about={title} act={() => setPath(above(path))} /> : null}{' '}
        <Action label={_('Refresh')} about={title} act={() => again(asked + 1)} />
      </p>
      {typeof found === 'string' ? (
        <p role="status">{found}</p>
      ) : (
        <Entries cluster={cluster} view={view} found={found} open={setPath} />
      )}
    </section>
  );
}

function Entries(props: {
  cluster: ICluster;
  view: IView;
  found: IFiles;
  open: (path: string) => void;
}): JSX.Element {
  const { cluster, view, found, open } = props;
  const { poller, _ } = view;
  if (!found.entries.length) return <p className="jsky-Panel-quiet">{_('No files yet.')}</p>;
  return (
    <ul className="jsky-Panel-list">
      {found.entries.map(({ name, kind, size, modified }) => {
        const path = found.path ? `${found.path}/${name}` : name;
        const folder = kind === 'folder';
        return (
          <li key={name} className="jsky-Files-entry">
            {folder ? (
              <button type="button" className="jsky-Files-name" onClick={() => open(path)}>
                {name}/
              </button>
            ) : (
              <span className="jsky-Files-name">{name}</span>
            )}
            <span className="jsky-Panel-quiet">
              {folder ? '' : `${bytes(size)}, `}
              {when(modified, poller.now())}
            </span>
            <a
              className="jsky-Panel-button"
              href={poller.api.downloadUrl(cluster.name, path)}
              download={folder ? `${name}.zip` : name}
              aria-label={_('Download %1', path)}
            >
              {folder ? _('Download zip') : _('Download')}
            </a>
          </li>
        );
      })}
      {found.more ? <li className="jsky-Panel-quiet">{_('%1 more', found.more)}</li> : null}
    </ul>
  );
}
