DELETE FROM machine_reservations WHERE machine_key LIKE 'machine:/%';
