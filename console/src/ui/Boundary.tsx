import { Component, type ReactNode } from 'react';
import { ProblemAlert } from '.';
import type { Problem } from '../problem';

/**
 * Says that a page does not show, in place of it, and leaves what is around it standing. Most often its code did not load: the network was
 * away, or the server has another version by now. Only a load of everything gets it then, which comes by itself with the network.
 */
export class Boundary extends Component<{ children: ReactNode }, { failed: boolean }> {
  override state = { failed: false };

  static getDerivedStateFromError() {
    return { failed: true };
  }

  override componentDidCatch() {
    window.addEventListener('online', reload);
  }

  override componentWillUnmount() {
    window.removeEventListener('online', reload);
  }

  override render() {
    if (!this.state.failed) return this.props.children;
    return <ProblemAlert title="This page does not show" problem={unseen} retry={reload} />;
  }
}

const reload = () => location.reload();

const unseen: Problem = {
  code: 'UNREACHABLE',
  message: 'The server did not give it, or it has a fault.',
  issues: [],
  blockers: [],
  details: {},
  requestId: '',
};
