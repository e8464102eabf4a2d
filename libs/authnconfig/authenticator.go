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
	c, _, err := parseAndCompile(data, disallowed)
	return c, err
}

// parseAndCompile decodes and validates a configuration.
func parseAndCompile(data []byte, disallowed []string) (*Configuration, *compiledConfig, error) {
	configuration, doc, err := decode(data)
	if err != nil {
		return nil, nil, err
	}
	out, list, err := compile(configuration, disallowed)
	if err != nil {
		return nil, nil, err
	}
	if err := doc.addLines(list); err != nil {
		return nil, nil, err
	}
	return configuration, out, nil
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
	config         Config
	initialContent []byte // content that New read
	active         atomic.Pointer[activeConfig]
}

// activeConfig is a configuration in use. It is immutable.
type activeConfig struct {
	issuers   map[string]*issuer // by URL
	anonymous *Anonymous
}

// issuer is an issuer with its rules.
type issuer struct {
	*oidctoken.Authenticator
	// previous applies the current rules with the keys of the previous provider. It is used until
	// previousUntil, while the keys of the current provider are unknown. It is nil if the provider
	// has not changed.
	previous      *oidctoken.Authenticator
	previousUntil time.Time
}

// New reads the file. An invalid file is an error. Keys of issuers are requested once Run is
// called.
func New(config Config) (*Authenticator, error) {
	data, err := filewatch.Read(config.File)
	if err != nil {
		return nil, fmt.Errorf("--authentication-config: %w", err)
	}
	a := &Authenticator{config: config, initialContent: data}
	s, err := a.buildConfig(data, nil)
	if err != nil {
		return nil, fmt.Errorf("--authentication-config: %s: %w", config.File, err)
	}
	a.active.Store(s)
	return a, nil
}

// buildConfig returns the configuration for a file's content. Issuers with an unchanged provider
// configuration keep the provider of the previous configuration, and so their keys.
func (a *Authenticator) buildConfig(data []byte, previous *activeConfig) (*activeConfig, error) {
	_, config, err := parseAndCompile(data, a.config.DisallowedIssuers)
	if err != nil {
		return nil, err
	}
	if config.anonymous != nil && a.config.AnonymousFixed != "" {
		return nil, errors.New("anonymous: " + a.config.AnonymousFixed)
	}
	s := &activeConfig{issuers: make(map[string]*issuer, len(config.issuers)), anonymous: config.anonymous}
	if s.anonymous == nil && previous != nil { // without a setting, anonymous access must not increase
		s.anonymous = previous.anonymous
	}
	for _, i := range config.issuers {
		if s.issuers[i.provider.IssuerURL], err = a.newIssuer(i, previous); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// newIssuer returns the authenticator of an issuer. It reuses the provider of the previous
// configuration if the provider's configuration is unchanged.
func (a *Authenticator) newIssuer(c compiledIssuer, previous *activeConfig) (*issuer, error) {
	provider, previousProvider, until := previous.findProvider(c.provider)
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

// findProvider returns the active provider with the configuration providerConfig, or nil if there
// is none. If previous is not nil, it is an older provider of the issuer. Its keys remain valid
// until the returned time, while the keys of the newer provider are unknown.
func (s *activeConfig) findProvider(providerConfig oidctoken.ProviderConfig) (provider, previous *oidctoken.Provider, until time.Time) {
	if s == nil || s.issuers[providerConfig.IssuerURL] == nil {
		return nil, nil, time.Time{}
	}
	i := s.issuers[providerConfig.IssuerURL]
	provider = i.Provider()
	if i.previous != nil && !hasKeys(provider) {
		previous, until = i.previous.Provider(), i.previousUntil
	}
	switch {
	case provider.Config().Equal(providerConfig):
		return provider, previous, until
	case previous != nil:
		return nil, previous, until
	}
	return nil, provider, time.Now().Add(swapTimeout)
}

// AuthenticateToken uses the keys of the issuer's provider. While these are unknown, it uses the
// keys of the previous provider until previousUntil.
func (i *issuer) AuthenticateToken(ctx context.Context, token string, audiences []string) (*authenticator.Response, bool, error) {
	if i.previous == nil || hasKeys(i.Provider()) || !time.Now().Before(i.previousUntil) {
		return i.Authenticator.AuthenticateToken(ctx, token, audiences)
	}
	resp, ok, err := i.previous.AuthenticateToken(ctx, token, audiences)
	if err != nil && hasKeys(i.Provider()) { // the previous provider has been stopped since
		return i.Authenticator.AuthenticateToken(ctx, token, audiences)
	}
	if err != nil { // the token may be valid with the new keys
		return nil, false, authenticator.Unavailable(err)
	}
	if ok && resp.Expires.After(i.previousUntil) {
		resp.Expires = i.previousUntil
	}
	return resp, ok, nil
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
func (a *Authenticator) Anonymous() *Anonymous { return a.active.Load().anonymous }

// Check returns nil if the keys of all issuers are known.
func (a *Authenticator) Check() error {
	var errs []error
	for _, i := range a.active.Load().issuers {
		errs = append(errs, i.Provider().Check())
	}
	return errors.Join(errs...)
}

// AuthenticateToken implements authenticator.Token. After an error it repeats the authentication if
// the configuration has changed.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string,
	audiences []string) (*authenticator.Response, bool, error) {
	if len(token) > authenticator.MaxTokenBytes {
		return nil, false, authenticator.ErrTooLong
	}
	url := oidctoken.Issuer(token)
	for {
		config := a.active.Load()
		issuer := config.issuers[url]
		if issuer == nil {
			return nil, false, nil
		}
		started := time.Now()
		resp, ok, err := issuer.AuthenticateToken(ctx, token, audiences)
		if err != nil && a.active.Load() != config { // the reload may have stopped the provider
			continue
		}
		a.config.Metrics.recordAuthentication(url, ok, time.Since(started))
		return resp, ok, err
	}
}

// Run updates keys and configuration until ctx ends, and returns the error of ctx. It is called
// once.
func (a *Authenticator) Run(ctx context.Context) error {
	r := &runner{Authenticator: a, ctx: ctx, group: task.NewGroup(ctx), cancelFuncs: map[*oidctoken.Provider]context.CancelFunc{}}
	r.startProviders(a.active.Load())
	r.group.Go("follow the authentication configuration", func(ctx context.Context) error {
		return filewatch.Follow(ctx, a.config.Logger, a.config.File, a.initialContent, r.reload)
	})
	if err := r.group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// runner is a running Authenticator. One goroutine calls its methods.
type runner struct {
	*Authenticator
	ctx         context.Context // the context of Run; parent of the contexts of the providers
	group       *task.Group
	cancelFuncs map[*oidctoken.Provider]context.CancelFunc
}

// startProviders runs the providers of a configuration that are not running.
func (r *runner) startProviders(s *activeConfig) {
	for url, i := range s.issuers {
		provider := i.Provider()
		if r.cancelFuncs[provider] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(r.ctx)
		r.cancelFuncs[provider] = cancel
		r.group.Go("keys of issuer "+url, func(group context.Context) error {
			defer cancel()
			defer context.AfterFunc(group, cancel)()
			if err := provider.Run(ctx); ctx.Err() == nil {
				return err
			}
			return nil // the provider was stopped
		})
	}
}

// stopUnusedProviders stops the providers that a configuration does not use. The previous provider
// of an issuer runs until its successor is initialized or previousUntil has passed, because it
// reads its keys only when the first token needs them.
func (r *runner) stopUnusedProviders(s *activeConfig) {
	used := map[*oidctoken.Provider]bool{}
	for url, i := range s.issuers {
		used[i.Provider()] = true
		if i.previous == nil || r.cancelFuncs[i.previous.Provider()] == nil {
			continue
		}
		used[i.previous.Provider()] = true
		stop := r.cancelFuncs[i.previous.Provider()]
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
	for p, stop := range r.cancelFuncs {
		if !used[p] {
			stop()
			delete(r.cancelFuncs, p)
		}
	}
}

// reload applies a new content of the file at once. An issuer that was removed must not stay
// trusted because another issuer does not respond.
func (r *runner) reload(_ context.Context, data []byte, err error) {
	var next *activeConfig
	if err == nil {
		next, err = r.buildConfig(data, r.active.Load())
	}
	r.config.Metrics.recordReload(err == nil)
	if err != nil {
		r.config.Logger.Error("failed to reload authentication configuration; keeping the previous one", "file",
			r.config.File, "error", err)
		return
	}
	r.startProviders(next)
	r.active.Store(next)
	r.stopUnusedProviders(next)
	if r.config.Reloaded != nil {
		r.config.Reloaded()
	}
	r.config.Logger.Info("authentication configuration reloaded", "file", r.config.File, "issuers", len(next.issuers))
}
