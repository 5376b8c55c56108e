import { graphql } from '../gql';

export const CheckAccount = graphql(`
  mutation CheckAccount($input: CheckProviderAccountInput!) {
    checkProviderAccount(input: $input) {
      providerAccount {
        id
        check {
          ok
          reason
          message
          at
        }
      }
    }
  }
`);

export const DeleteAccount = graphql(`
  mutation DeleteAccount($input: DeleteProviderAccountInput!) {
    deleteProviderAccount(input: $input) {
      deletedId
    }
  }
`);
