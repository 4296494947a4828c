/** Files of a cluster, one folder at a time, and of a run, each with its download. */

import { downloadIcon, fileIcon, folderIcon, refreshIcon } from '@jupyterlab/ui-components';
import React, { useEffect, useState } from 'react';

import type { ICluster, IFiles, IRun } from './api';
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
      <button
        type="button"
        className="jsky-Files-toggle"
        aria-expanded={opened}
        aria-label={_('Files: %1', cluster.name)}
        onClick={() => setOpened(!opened)}
      >
        <span className="jsky-Panel-twist" aria-hidden="true">
          {opened ? '▾' : '▸'}
        </span>
        {_('Files')}
      </button>
      {opened ? <Folder cluster={cluster} view={view} /> : null}
    </div>
  );
}

/** The cluster of a run while it is up, with the files that the run has written. */
export function clusterOf(run: IRun, clusters: readonly ICluster[]): ICluster | undefined {
  const found = clusters.find(one => one.name === run.cluster && one.state === 'up');
  return found && found.created <= (run.ended ?? Infinity) ? found : undefined;
}

/** Files that a run has written. */
export function RunFiles({ run, view }: { run: IRun; view: IView }): JSX.Element | null {
  const { poller, _ } = view;
  const [found, setFound] = useState<IFiles | string>(_('Asking its nodes…'));
  useEffect(() => {
    let gone = false;
    poller.api
      .runFiles(run.run_id)
      .catch(error => String(error.message))
      .then(answer => gone || setFound(answer));
    return () => {
      gone = true;
    };
  }, [run.run_id, run.ended]);
  const cluster = clusterOf(run, poller.state?.clusters ?? []);
  if (!cluster) return null;
  return (
    <div className="jsky-Row-note jsky-Files" onClick={event => event.stopPropagation()}>
      {typeof found === 'string' ? (
        <p role="status">{found}</p>
      ) : (
        <Entries cluster={cluster} view={view} found={found} none={_('It has written no files.')} />
      )}
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
        <span className="jsky-Row-line" title={title}>
          {title}
        </span>
        {path ? <Action label={_('Up')} about={title} act={() => setPath(above(path))} /> : null}
        <Action
          label={_('Refresh')}
          about={title}
          icon={refreshIcon}
          act={() => again(asked + 1)}
        />
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
  none?: string;
  open?: (path: string) => void;
}): JSX.Element {
  const { cluster, view, found, none, open } = props;
  const { poller, _ } = view;
  if (!found.entries.length) return <p className="jsky-Panel-quiet">{none ?? _('No files yet.')}</p>;
  return (
    <ul className="jsky-Panel-list">
      {found.entries.map(({ name, kind, size, modified }) => {
        const path = found.path ? `${found.path}/${name}` : name;
        const folder = kind === 'folder';
        const Icon = folder ? folderIcon : fileIcon;
        return (
          <li key={name} className="jsky-Files-entry">
            <Icon.react tag="span" className="jsky-Files-icon" width="16px" height="16px" />
            {folder ? (
              <button
                type="button"
                className="jsky-Files-name"
                title={name}
                onClick={() => open?.(path)}
              >
                {name}/
              </button>
            ) : (
              <span className="jsky-Files-name" title={name}>
                {name}
              </span>
            )}
            <span className="jsky-Panel-quiet">
              {folder ? '' : `${bytes(size)} · `}
              {when(modified, poller.now())}
            </span>
            <a
              className="jsky-Panel-button jsky-mod-icon"
              href={poller.api.downloadUrl(cluster.name, path)}
              download={folder ? `${name}.zip` : name}
              aria-label={_('Download %1', path)}
              title={folder ? _('Download zip') : _('Download')}
            >
              <downloadIcon.react tag="span" width="16px" height="16px" />
            </a>
          </li>
        );
      })}
      {found.more ? <li className="jsky-Panel-quiet">{_('%1 more', found.more)}</li> : null}
    </ul>
  );
}
