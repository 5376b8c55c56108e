import { lazy, useEffect, useMemo, useSyncExternalStore } from 'react';
import { BrowserRouter, Navigate, Route, Routes, useLocation } from 'react-router';
import { Provider } from 'urql';
import { createApi, createSocket } from './api';
import { currentToken, onSessionChange } from './session';
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
        <Route path="/sign-in" element={<SignIn />} />
        <Route path="*" element={token === null ? <ToSignIn /> : <SignedIn key={token} token={token} />} />
      </Routes>
    </BrowserRouter>
  );
}

function ToSignIn() {
  const { pathname, search } = useLocation();
  return <Navigate to="/sign-in" replace state={{ from: pathname + search }} />;
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
