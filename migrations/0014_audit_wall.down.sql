ALTER POLICY anybody_adds ON audit_log WITH CHECK (true);
