package app

import (
	"fmt"
	"os"

	"binnacle/libs/authenticator"
	"binnacle/libs/authnconfig"
	"binnacle/libs/bootstraptoken"
	"binnacle/libs/features"
	"binnacle/libs/satoken"
	"binnacle/libs/servicerunner"
	"binnacle/libs/serving/health"
	"binnacle/libs/task"
	"binnacle/libs/tokenfile"
	"binnacle/services/authn-webhook/internal/objects"
)

// tokens holds the authenticators in the order in which they are called, and their background
// tasks.
type tokens struct {
	o     *TokenOptions
	s     *servicerunner.Service
	gates *features.Gates
	union authenticator.Union
	tasks []task.Task
}

// build returns the authenticators of all kinds of tokens that are turned on.
func (o *TokenOptions) build(s *servicerunner.Service, gates *features.Gates) (*tokens, error) {
	t := &tokens{o: o, s: s, gates: gates}
	found, err := t.objects()
	if err != nil {
		return nil, err
	}
	constructors := []func(*objects.Objects) (authenticator.Token, error){t.file, t.serviceAccounts, t.bootstrap, t.jwt}
	for _, create := range constructors {
		member, err := create(found)
		if err != nil {
			return nil, err
		}
		if member != nil {
			t.union = append(t.union, member)
		}
	}
	if len(t.union) == 0 {
		s.Log.Warn("no kind of token is configured, so every token is unknown")
	}
	return t, nil
}

// objects returns the objects that tokens depend on, or nil if no kind of token needs any.
func (t *tokens) objects() (*objects.Objects, error) {
	c := objects.Config{
		Client:          t.s.Client,
		ServiceAccounts: len(t.o.ServiceAccounts.Issuers) > 0,
		BootstrapTokens: t.o.BootstrapTokens,
		Confirm:         t.o.ConfirmLookups,
		Logger:          t.s.Log,
	}
	if !c.ServiceAccounts && !c.BootstrapTokens {
		return nil, nil
	}
	found, err := objects.New(c)
	if err != nil {
		return nil, err
	}
	t.s.Health.Add("informer-sync", found.Check, health.Readyz)
	t.tasks = append(t.tasks, task.Task{Name: "watch objects of tokens", Run: found.Run})
	return found, nil
}

// file returns the authenticator of the tokens in --token-auth-file, or nil.
func (t *tokens) file(*objects.Objects) (authenticator.Token, error) {
	if t.o.File == "" {
		return nil, nil
	}
	f, warnings, err := tokenfile.Load(t.o.File)
	if err != nil {
		return nil, fmt.Errorf("--token-auth-file: %w", err)
	}
	for _, w := range warnings {
		t.s.Log.Warn("token file", "file", t.o.File, "warning", w)
	}
	return authenticator.ForAudiences(t.o.audiences(), f), nil
}

// serviceAccounts returns the authenticator of service account tokens, or nil.
func (t *tokens) serviceAccounts(found *objects.Objects) (authenticator.Token, error) {
	o := &t.o.ServiceAccounts
	if len(o.Issuers) == 0 {
		return nil, nil
	}
	keys, err := satoken.LoadPublicKeys(o.KeyFiles...)
	if err != nil {
		return nil, fmt.Errorf("--service-account-key-file: %w", err)
	}
	return satoken.New(satoken.Config{
		Issuers:   o.Issuers,
		Keys:      keys,
		Audiences: t.o.audiences(),
		Lookup:    o.Lookup,
		Objects:   found,
		Observe:   satoken.CountUses(t.s.Metrics, satoken.UseValid, satoken.UseStale, satoken.UseLegacy, satoken.UseLegacyInvalid),
	})
}

// bootstrap returns the authenticator of bootstrap tokens, or nil.
func (t *tokens) bootstrap(found *objects.Objects) (authenticator.Token, error) {
	if !t.o.BootstrapTokens {
		return nil, nil
	}
	return authenticator.ForAudiences(t.o.audiences(), bootstraptoken.New(found, nil)), nil
}

// jwt returns the authenticator of the authentication configuration, or nil.
func (t *tokens) jwt(*objects.Objects) (authenticator.Token, error) {
	if !t.o.JWT.IsSet() {
		return nil, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("find the host's name: %w", err)
	}
	source, err := t.o.JWT.Source(authnconfig.Config{
		DisallowedIssuers: t.o.ServiceAccounts.Issuers,
		AnonymousFixed:    authnconfig.AnonymousGate(t.gates),
		Logger:            t.s.Log,
		Metrics:           authnconfig.NewMetrics(t.s.Metrics, host),
	})
	if err != nil {
		return nil, err
	}
	t.tasks = append(t.tasks, task.Task{Name: "issuers of tokens", Run: source.Run})
	return authenticator.ForAudiences(t.o.audiences(), source), nil
}
