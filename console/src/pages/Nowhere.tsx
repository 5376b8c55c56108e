import { IconCompass } from '@tabler/icons-react';
import { usePath } from '../tenant';
import { Empty, LinkTo, Page } from '../ui';

export default function Nowhere() {
  const path = usePath();
  return (
    <Page title="There is no such page">
      <Empty icon={IconCompass} title="Nothing lives at this address" action={<LinkTo to={path('/accounts')}>Go to the accounts</LinkTo>} />
    </Page>
  );
}
