-- What runs and hosts hold is reserved by the OS machine id too where the machine has no serial number.
INSERT INTO machine_reservations (machine_key, bootstrap_id, host_id)
SELECT 'machine:/' || (b.machine ->> 'osMachineId'), r.bootstrap_id, r.host_id
FROM machine_reservations AS r
JOIN bootstraps AS b ON b.id = r.bootstrap_id
WHERE coalesce(b.machine ->> 'serial', '') = '' AND b.machine ->> 'osMachineId' <> ''
ON CONFLICT DO NOTHING;
