-- What runs and hosts hold is reserved by serial number and OS machine id too, where both are known: two accounts may know one machine by
-- different names.
INSERT INTO machine_reservations (machine_key, bootstrap_id, host_id)
SELECT 'machine:' || (b.machine ->> 'serial') || '/' || (b.machine ->> 'osMachineId'), r.bootstrap_id, r.host_id
FROM machine_reservations AS r
JOIN bootstraps AS b ON b.id = r.bootstrap_id
WHERE b.machine ->> 'serial' <> '' AND b.machine ->> 'osMachineId' <> ''
ON CONFLICT DO NOTHING;
