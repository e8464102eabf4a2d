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

// swapTimeout is how long the old keys of an issuer remain valid after a change of its URL or CA,
// while the keys at the new URL are unknown.
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
	config  Config
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
	// previous applies the current rules with the keys of the previous provider. It is used until
	// previousUntil, while the keys of the current provider are unknown. It is nil if the provider has
	// not changed.
	previous      *oidctoken.Authenticator
	previousUntil time.Time
}

// New reads the file. An invalid file is an error. Keys of issuers are requested once Run is
// called.
func New(c Config) (*Authenticator, error) {
	data, err := filewatch.Read(c.File)
	if err != nil {
		return nil, fmt.Errorf("--authentication-config: %w", err)
	}
	a := &Authenticator{config: c, content: data}
	s, err := a.build(data, nil)
	if err != nil {
		return nil, fmt.Errorf("--authentication-config: %s: %w", c.File, err)
	}
	a.current.Store(s)
	return a, nil
}

// build returns the state for a file's content. Issuers with an unchanged provider configuration
// keep the provider of the previous state, and so their keys.
func (a *Authenticator) build(data []byte, previous *state) (*state, error) {
	_, config, err := parse(data, a.config.DisallowedIssuers)
	if err != nil {
		return nil, err
	}
	if config.anonymous != nil && a.config.AnonymousFixed != "" {
		return nil, errors.New("anonymous: " + a.config.AnonymousFixed)
	}
	s := &state{issuers: make(map[string]*issuer, len(config.issuers)), anonymous: config.anonymous}
	if s.anonymous == nil && previous != nil { // without a setting, anonymous access must not increase
		s.anonymous = previous.anonymous
	}
	for _, i := range config.issuers {
		if s.issuers[i.provider.IssuerURL], err = a.issuer(i, previous); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// issuer returns the authenticator of an issuer. It reuses the provider of the previous
// configuration if that is unchanged.
func (a *Authenticator) issuer(c compiledIssuer, previous *state) (*issuer, error) {
	provider, previousProvider, until := previous.provider(c.provider)
	c.provider.Withdrawn = a.config.Withdrawn
	var err error
	if provider == nil {
		if provider, err = oidctoken.NewProvider(c.provider, a.config.Logger); err != nil {
			return nil, err
		}
	}
	out := &issuer{previousUntil: until}
	out.Authenticator, err = oidctoken.New(provider, c.audiences, c.rules)
	if err != nil || previousProvider == nil {
		return out, err
	}
	out.previous, err = oidctoken.New(previousProvider, c.audiences, c.rules)
	return out, err
}

// provider returns the state's provider with the same configuration, or nil if there is none.
// previous, if not nil, is a provider of the issuer whose keys remain valid until a time, while the
// keys of the new one are unknown.
func (s *state) provider(c oidctoken.ProviderConfig) (provider, previous *oidctoken.Provider, until time.Time) {
	if s == nil || s.issuers[c.IssuerURL] == nil {
		return nil, nil, time.Time{}
	}
	i := s.issuers[c.IssuerURL]
	provider = i.Provider()
	if i.previous != nil && !hasKeys(provider) {
		previous, until = i.previous.Provider(), i.previousUntil
	}
	switch {
	case provider.Config().Equal(c):
		return provider, previous, until
	case previous != nil:
		return nil, previous, until
	}
	return nil, provider, time.Now().Add(swapTimeout)
}

// AuthenticateToken uses the keys of the issuer's provider. While these are unknown, it uses the keys
// of the previous provider until previousUntil.
func (i *issuer) AuthenticateToken(ctx context.Context, token string, audiences []string) (*authenticator.Response, bool, error) {
	if i.previous == nil || hasKeys(i.Provider()) || !time.Now().Before(i.previousUntil) {
		return i.Authenticator.AuthenticateToken(ctx, token, audiences)
	}
	r, ok, err := i.previous.AuthenticateToken(ctx, token, audiences)
	if err != nil { // the token may be valid with the new keys
		return nil, false, authenticator.Unavailable(err)
	}
	if ok && r.Expires.After(i.previousUntil) {
		r.Expires = i.previousUntil
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
	started := time.Now()
	r, ok, err := issuer.AuthenticateToken(ctx, token, audiences)
	a.config.Metrics.recordAuthentication(url, ok, time.Since(started))
	return r, ok, err
}

// Run updates keys and configuration until ctx ends, and returns the error of ctx. It is called
// once.
func (a *Authenticator) Run(ctx context.Context) error {
	r := &runner{Authenticator: a, ctx: ctx, group: task.NewGroup(ctx), running: map[*oidctoken.Provider]context.CancelFunc{}}
	r.start(a.current.Load())
	r.group.Go("follow the authentication configuration", func(ctx context.Context) error {
		return filewatch.Follow(ctx, a.config.Logger, a.config.File, a.content, r.reload)
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

// stop stops the providers that a state does not use. A previous provider runs until its successor is
// initialized, because it reads its keys when the first token needs them.
func (r *runner) stop(s *state) {
	used := map[*oidctoken.Provider]bool{}
	for url, i := range s.issuers {
		used[i.Provider()] = true
		if i.previous == nil || r.running[i.previous.Provider()] == nil {
			continue
		}
		used[i.previous.Provider()] = true
		stop := r.running[i.previous.Provider()]
		r.group.Go("former keys of issuer "+url, func(ctx context.Context) error {
			defer stop()
			ctx, cancel := context.WithDeadline(ctx, i.previousUntil)
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
	r.config.Metrics.recordReload(err == nil)
	if err != nil {
		r.config.Logger.Error("failed to reload authentication configuration; keeping the previous one", "file", r.config.File, "error", err)
		return
	}
	r.start(next)
	r.current.Store(next)
	r.stop(next)
	if r.config.Reloaded != nil {
		r.config.Reloaded()
	}
	r.config.Logger.Info("authentication configuration reloaded", "file", r.config.File, "issuers", len(next.issuers))
}
