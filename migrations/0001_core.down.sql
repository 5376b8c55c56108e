DROP TABLE secrets, events, inventory_claims, machine_reservations, host_certificates, hosts,
    bootstrap_transitions, bootstraps, instances, pools, provider_accounts;
