package authnconfig

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"binnacle/libs/authenticator"
	"binnacle/libs/filewatch"
	"binnacle/libs/oidctoken"
	"binnacle/libs/task"
)

// swapTimeout is how long the keys of an issuer with a changed place or CA remain valid while the
// keys of the new place are unknown.
const swapTimeout = 10 * time.Second

// Parse decodes and validates a configuration. disallowed lists the issuers of service account
// tokens, which it must not contain.
func Parse(data []byte, disallowed []string) (*Configuration, error) {
	c, _, err := parse(data, disallowed)
	return c, err
}

// parse decodes and validates a configuration.
func parse(data []byte, disallowed []string) (*Configuration, *compiled, error) {
	c, doc, err := decode(data)
	if err != nil {
		return nil, nil, err
	}
	out, list, err := compile(c, disallowed)
	if err != nil {
		return nil, nil, err
	}
	if err := doc.errors(list); err != nil {
		return nil, nil, err
	}
	return c, out, nil
}

// Config configures an Authenticator.
type Config struct {
	File string
	// DisallowedIssuers are the issuers of service account tokens.
	DisallowedIssuers []string
	// AnonymousFixed is the reason why the file must not configure anonymous requests; empty if it
	// may.
	AnonymousFixed string
	// Reloaded is called when a new content of the file is in use; may be nil.
	Reloaded func()
	// Withdrawn is called when keys of an issuer become invalid; may be nil.
	Withdrawn func()
	Logger    *slog.Logger
	Metrics   *Metrics
}

// Authenticator authenticates tokens by the configuration file. It implements authenticator.Token.
type Authenticator struct {
	c       Config
	content []byte // content that New read
	current atomic.Pointer[state]
}

// state is a configuration in use. It is immutable.
type state struct {
	issuers   map[string]*issuer // by URL
	anonymous *Anonymous
}

// issuer is an issuer with its rules.
type issuer struct {
	*oidctoken.Authenticator
	// former uses the current rules and the keys of the former place. It is valid until a time,
	// while the keys of the new place are unknown; nil if there was no former place.
	former *oidctoken.Authenticator
	until  time.Time
}

// New reads the file. An invalid file is an error. Keys of issuers are requested once Run is
// called.
func New(c Config) (*Authenticator, error) {
	data, err := filewatch.Read(c.File)
	if err != nil {
		return nil, fmt.Errorf("--authentication-config: %w", err)
	}
	a := &Authenticator{c: c, content: data}
	s, err := a.build(data, nil)
	if err != nil {
		return nil, fmt.Errorf("--authentication-config: %s: %w", c.File, err)
	}
	a.current.Store(s)
	return a, nil
}

// build returns the state for a file's content. Issuers with an unchanged place are taken from the
// previous state.
func (a *Authenticator) build(data []byte, before *state) (*state, error) {
	_, c, err := parse(data, a.c.DisallowedIssuers)
	if err != nil {
		return nil, err
	}
	if c.anonymous != nil && a.c.AnonymousFixed != "" {
		return nil, errors.New("anonymous: " + a.c.AnonymousFixed)
	}
	s := &state{issuers: make(map[string]*issuer, len(c.issuers)), anonymous: c.anonymous}
	if s.anonymous == nil && before != nil { // without a setting, anonymous access must not increase
		s.anonymous = before.anonymous
	}
	for _, i := range c.issuers {
		if s.issuers[i.provider.IssuerURL], err = a.issuer(i, before); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// issuer returns the authenticator of an issuer. It reuses the provider of the previous
// configuration if that is unchanged.
func (a *Authenticator) issuer(c compiledIssuer, before *state) (*issuer, error) {
	p, former, until := before.provider(c.provider)
	c.provider.Withdrawn = a.c.Withdrawn
	var err error
	if p == nil {
		if p, err = oidctoken.NewProvider(c.provider, a.c.Logger); err != nil {
			return nil, err
		}
	}
	out := &issuer{until: until}
	out.Authenticator, err = oidctoken.New(p, c.audiences, c.rules)
	if err != nil || former == nil {
		return out, err
	}
	out.former, err = oidctoken.New(former, c.audiences, c.rules)
	return out, err
}

// provider returns the state's provider for a configuration, or nil. former is a provider whose
// keys remain valid until a time, while those of the new one are unknown.
func (s *state) provider(c oidctoken.ProviderConfig) (p, former *oidctoken.Provider, until time.Time) {
	if s == nil || s.issuers[c.IssuerURL] == nil {
		return nil, nil, time.Time{}
	}
	i := s.issuers[c.IssuerURL]
	p = i.Provider()
	if i.former != nil && !hasKeys(p) {
		former, until = i.former.Provider(), i.until
	}
	switch {
	case p.Config().Equal(c):
		return p, former, until
	case former != nil:
		return nil, former, until
	}
	return nil, p, time.Now().Add(swapTimeout)
}

// AuthenticateToken uses the issuer's keys, or the former ones while the keys are unknown.
func (i *issuer) AuthenticateToken(ctx context.Context, token string, audiences []string) (*authenticator.Response, bool, error) {
	if i.former == nil || hasKeys(i.Provider()) || !time.Now().Before(i.until) {
		return i.Authenticator.AuthenticateToken(ctx, token, audiences)
	}
	r, ok, err := i.former.AuthenticateToken(ctx, token, audiences)
	if err != nil { // the keys of the new place may differ
		return nil, false, authenticator.Unavailable(err)
	}
	if ok && r.Expires.After(i.until) {
		r.Expires = i.until
	}
	return r, ok, nil
}

// hasKeys reports whether the keys of a provider are known.
func hasKeys(p *oidctoken.Provider) bool {
	select {
	case <-p.Initialized():
		return true
	default:
		return false
	}
}

// Anonymous returns the current setting for anonymous requests, or nil if the file has none.
func (a *Authenticator) Anonymous() *Anonymous { return a.current.Load().anonymous }

// Check returns nil if the keys of all issuers are known.
func (a *Authenticator) Check() error {
	var errs []error
	for _, i := range a.current.Load().issuers {
		errs = append(errs, i.Provider().Check())
	}
	return errors.Join(errs...)
}

// AuthenticateToken implements authenticator.Token.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string, audiences []string) (*authenticator.Response, bool, error) {
	if len(token) > authenticator.MaxTokenBytes {
		return nil, false, authenticator.ErrTooLong
	}
	url := oidctoken.Issuer(token)
	issuer := a.current.Load().issuers[url]
	if issuer == nil {
		return nil, false, nil
	}
	began := time.Now()
	r, ok, err := issuer.AuthenticateToken(ctx, token, audiences)
	a.c.Metrics.authenticated(url, ok, time.Since(began))
	return r, ok, err
}

// Run updates keys and configuration until ctx ends, and returns the error of ctx. It is called
// once.
func (a *Authenticator) Run(ctx context.Context) error {
	r := &runner{Authenticator: a, ctx: ctx, group: task.NewGroup(ctx), running: map[*oidctoken.Provider]context.CancelFunc{}}
	r.start(a.current.Load())
	r.group.Go("follow the authentication configuration", func(ctx context.Context) error {
		return filewatch.Follow(ctx, a.c.Logger, a.c.File, a.content, r.reload)
	})
	if err := r.group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// runner is a running Authenticator. One goroutine calls its methods.
type runner struct {
	*Authenticator
	ctx     context.Context // the context of Run, from which those of the providers derive
	group   *task.Group
	running map[*oidctoken.Provider]context.CancelFunc
}

// start runs the providers of a state that are not running.
func (r *runner) start(s *state) {
	for url, i := range s.issuers {
		p := i.Provider()
		if r.running[p] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(r.ctx)
		r.running[p] = cancel
		r.group.Go("keys of issuer "+url, func(group context.Context) error {
			defer cancel()
			defer context.AfterFunc(group, cancel)()
			if err := p.Run(ctx); ctx.Err() == nil {
				return err
			}
			return nil // the provider was stopped
		})
	}
}

// stop stops the providers that a state does not use. A former provider runs until its
// successor is initialized, because its keys are read when the first token needs them.
func (r *runner) stop(s *state) {
	used := map[*oidctoken.Provider]bool{}
	for url, i := range s.issuers {
		used[i.Provider()] = true
		if i.former == nil || r.running[i.former.Provider()] == nil {
			continue
		}
		used[i.former.Provider()] = true
		stop := r.running[i.former.Provider()]
		r.group.Go("former keys of issuer "+url, func(ctx context.Context) error {
			defer stop()
			ctx, cancel := context.WithDeadline(ctx, i.until)
			defer cancel()
			select {
			case <-i.Provider().Initialized():
			case <-ctx.Done():
			}
			return nil
		})
	}
	for p, stop := range r.running {
		if !used[p] {
			stop()
			delete(r.running, p)
		}
	}
}

// reload applies a new content of the file at once. An issuer that was removed must not stay
// trusted because another issuer does not respond.
func (r *runner) reload(_ context.Context, data []byte, err error) {
	var next *state
	if err == nil {
		next, err = r.build(data, r.current.Load())
	}
	r.c.Metrics.reloaded(err == nil)
	if err != nil {
		r.c.Logger.Error("failed to reload authentication configuration; keeping the previous one", "file", r.c.File, "error", err)
		return
	}
	r.start(next)
	r.current.Store(next)
	r.stop(next)
	if r.c.Reloaded != nil {
		r.c.Reloaded()
	}
	r.c.Logger.Info("authentication configuration reloaded", "file", r.c.File, "issuers", len(next.issuers))
}
