DROP TABLE api_tokens;
DROP FUNCTION api_tokens_changed();
