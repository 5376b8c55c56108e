import { Activity, lazy, useEffect, useMemo, useState, useSyncExternalStore } from 'react';
import { BrowserRouter, Navigate, Route, Routes, useLocation } from 'react-router';
import { Provider } from 'urql';
import { createApi, createSocket } from './api';
import { currentSubject, currentToken, endReason, onSessionChange } from './session';
import { SocketContext } from './socket';
import { Shell } from './Shell';
import { SignIn } from './pages/SignIn';
import { Tenants } from './pages/Tenants';

const Callback = lazy(() => import('./pages/Callback'));
const Accounts = lazy(() => import('./pages/Accounts'));
const AccountForm = lazy(() => import('./pages/AccountForm'));
const Account = lazy(() => import('./pages/Account'));
const Offers = lazy(() => import('./pages/Offers'));
const Bootstraps = lazy(() => import('./pages/Bootstraps'));
const NewBootstrap = lazy(() => import('./pages/NewBootstrap'));
const Bootstrap = lazy(() => import('./pages/Bootstrap'));
const Pools = lazy(() => import('./pages/Pools'));
const Pool = lazy(() => import('./pages/Pool'));
const Access = lazy(() => import('./pages/Access'));
const Audit = lazy(() => import('./pages/Audit'));
const Secrets = lazy(() => import('./pages/Secrets'));
const Orphans = lazy(() => import('./pages/Orphans'));
const Settings = lazy(() => import('./pages/Settings'));
const Nowhere = lazy(() => import('./pages/Nowhere'));

export function App() {
  const token = useSyncExternalStore(onSessionChange, currentToken);
  return (
    // Fields whose value is in the address show it in the same turn, so it is no transition.
    <BrowserRouter useTransitions={false}>
      <Routes>
        <Route path="/sign-in/callback" element={<Callback />} />
        <Route path="/sign-in" element={token === null ? <SignIn place="/" /> : <Navigate to="/" replace />} />
        <Route path="*" element={<Session token={token} />} />
      </Routes>
    </BrowserRouter>
  );
}

/**
 * The pages of one person. When the credential ends by itself they stay, unseen and at rest, so that what was typed is still there when
 * that person signs in again; nobody else gets to see them.
 */
function Session({ token }: { token: string | null }) {
  const { pathname, search } = useLocation();
  const [last, setLast] = useState(token);
  if (token !== null && token !== last) setLast(token);
  const waits = token === null && endReason() !== '';
  return (
    <>
      {token === null && <SignIn place={pathname + search} />}
      {last !== null && (token !== null || waits) && (
        <Activity mode={waits ? 'hidden' : 'visible'}>
          <SignedIn key={currentSubject()} token={last} />
        </Activity>
      )}
    </>
  );
}

function SignedIn({ token }: { token: string }) {
  const api = useMemo(() => createApi(token), [token]);
  const socket = useMemo(() => createSocket(token), [token]);
  useEffect(() => () => void socket.dispose(), [socket]);
  return (
    <Provider value={api}>
      <SocketContext value={socket}>
        <Routes>
          <Route index element={<Tenants token={token} />} />
          <Route path="t/:tenant" element={<Shell token={token} />}>
            <Route index element={<Navigate to="accounts" replace />} />
            <Route path="accounts" element={<Accounts />} />
            <Route path="accounts/new" element={<AccountForm />} />
            <Route path="accounts/:accountId" element={<Account />} />
            <Route path="accounts/:accountId/edit" element={<AccountForm />} />
            <Route path="offers" element={<Offers />} />
            <Route path="bootstraps" element={<Bootstraps />} />
            <Route path="bootstraps/new" element={<NewBootstrap />} />
            <Route path="bootstraps/:bootstrapId" element={<Bootstrap />} />
            <Route path="pools" element={<Pools />} />
            <Route path="pools/:poolId" element={<Pool />} />
            <Route path="access" element={<Access />} />
            <Route path="audit" element={<Audit />} />
            <Route path="secrets" element={<Secrets />} />
            <Route path="orphans" element={<Orphans />} />
            <Route path="settings" element={<Settings />} />
            <Route path="*" element={<Nowhere />} />
          </Route>
          <Route path="*" element={<Navigate to="/" replace />} />
        </Routes>
      </SocketContext>
    </Provider>
  );
}
