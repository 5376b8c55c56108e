package agent

import (
	"context"
	"errors"
	"fmt"
)

// join tries until the server has decided. The key is on disk before the first try, so that each later one, after a
// restart too, is the same join, for which the server gives the same certificate again.
func (a *Agent) join(ctx context.Context, st *state) (*identity, error) {
	token, err := a.cfg.token()
	if err != nil {
		return nil, err
	}
	host, err := st.newIdentity()
	if err != nil {
		return nil, err
	}
	csr, err := host.csr()
	if err != nil {
		return nil, err
	}
	c, err := newJoinClient(a.cfg.Server, a.cfg.CAPin)
	if err != nil {
		return nil, err
	}
	defer c.close()
	for failures := 0; ; failures++ {
		answer, err := c.join(ctx, joinRequest{
			Token: token, CSR: csr, Machine: readMachine(a.cfg.Root), Clock: clockText(a.now()), AgentVersion: a.version,
		})
		if err == nil {
			joined, err := host.joined(answer)
			if err != nil {
				return nil, fmt.Errorf("the answer to the join: %w", err)
			}
			if err := st.save(joined); err != nil {
				return nil, err
			}
			a.log.InfoContext(ctx, "joined", "hostId", joined.HostID, "tenantId", joined.TenantID)
			return joined, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !transient(err) {
			return nil, refusal(err)
		}
		wait := a.backoff(failures)
		if answer, ok := errors.AsType[*answerError](err); ok && answer.retryAfter > wait {
			wait = answer.retryAfter
		}
		a.log.WarnContext(ctx, "the join failed and is tried again", "error", err, "retryIn", wait.String())
		if err := sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

func refusal(err error) error {
	if errors.Is(err, errWrongServer) {
		return &RefusedError{Code: "WRONG_SERVER", Message: err.Error()}
	}
	answer, ok := errors.AsType[*answerError](err)
	if !ok {
		return fmt.Errorf("joining: %w", err)
	}
	refused := &RefusedError{Code: answer.Code, Reason: answer.Details.Reason, Message: answer.Message}
	if skew := answer.Details.SkewSeconds; skew != 0 {
		refused.Message += fmt.Sprintf(" (this clock is off by %d s)", skew)
	}
	return refused
}
