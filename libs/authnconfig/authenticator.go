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
	configuration, _, err := parseAndCompile(data, disallowed)
	return configuration, err
}

// parseAndCompile decodes and validates a configuration.
func parseAndCompile(data []byte, disallowed []string) (*Configuration, *compiledConfig, error) {
	configuration, doc, err := decode(data)
	if err != nil {
		return nil, nil, err
	}
	compiled, problems, err := compile(configuration, disallowed)
	if err != nil {
		return nil, nil, err
	}
	if err := doc.addLines(problems); err != nil {
		return nil, nil, err
	}
	return configuration, compiled, nil
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
	out := &Authenticator{config: config, initialContent: data}
	active, err := out.buildConfig(data, nil)
	if err != nil {
		return nil, fmt.Errorf("--authentication-config: %s: %w", config.File, err)
	}
	out.active.Store(active)
	return out, nil
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
	next := &activeConfig{issuers: make(map[string]*issuer, len(config.issuers)), anonymous: config.anonymous}
	if next.anonymous == nil && previous != nil { // without a setting, anonymous access must not increase
		next.anonymous = previous.anonymous
	}
	for _, compiled := range config.issuers {
		if next.issuers[compiled.provider.IssuerURL], err = a.newIssuer(compiled, previous); err != nil {
			return nil, err
		}
	}
	return next, nil
}

// newIssuer returns the authenticator of an issuer. It reuses the provider of the previous
// configuration if the provider's configuration is unchanged.
func (a *Authenticator) newIssuer(compiled compiledIssuer, previous *activeConfig) (*issuer, error) {
	provider, previousProvider, until := previous.findProvider(compiled.provider)
	compiled.provider.Withdrawn = a.config.Withdrawn
	var err error
	if provider == nil {
		if provider, err = oidctoken.NewProvider(compiled.provider, a.config.Logger); err != nil {
			return nil, err
		}
	}
	result := &issuer{previousUntil: until}
	result.Authenticator, err = oidctoken.New(provider, compiled.audiences, compiled.rules)
	if err != nil || previousProvider == nil {
		return result, err
	}
	result.previous, err = oidctoken.New(previousProvider, compiled.audiences, compiled.rules)
	return result, err
}

// findProvider returns the active provider with the configuration providerConfig, or nil if there
// is none. If previous is not nil, it is an older provider of the issuer. Its keys remain valid
// until the returned time, while the keys of the newer provider are unknown.
func (s *activeConfig) findProvider(providerConfig oidctoken.ProviderConfig) (provider, previous *oidctoken.Provider, until time.Time) {
	if s == nil || s.issuers[providerConfig.IssuerURL] == nil {
		return nil, nil, time.Time{}
	}
	current := s.issuers[providerConfig.IssuerURL]
	provider = current.Provider()
	if current.previous != nil && !hasKeys(provider) {
		previous, until = current.previous.Provider(), current.previousUntil
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
func hasKeys(provider *oidctoken.Provider) bool {
	select {
	case <-provider.Initialized():
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
	for _, issuer := range a.active.Load().issuers {
		errs = append(errs, issuer.Provider().Check())
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
func (r *runner) startProviders(config *activeConfig) {
	for url, issuer := range config.issuers {
		provider := issuer.Provider()
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
func (r *runner) stopUnusedProviders(config *activeConfig) {
	used := map[*oidctoken.Provider]bool{}
	for url, issuer := range config.issuers {
		used[issuer.Provider()] = true
		if issuer.previous == nil || r.cancelFuncs[issuer.previous.Provider()] == nil {
			continue
		}
		used[issuer.previous.Provider()] = true
		stop := r.cancelFuncs[issuer.previous.Provider()]
		r.group.Go("former keys of issuer "+url, func(ctx context.Context) error {
			defer stop()
			ctx, cancel := context.WithDeadline(ctx, issuer.previousUntil)
			defer cancel()
			select {
			case <-issuer.Provider().Initialized():
			case <-ctx.Done():
			}
			return nil
		})
	}
	for provider, stop := range r.cancelFuncs {
		if !used[provider] {
			stop()
			delete(r.cancelFuncs, provider)
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
