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

// tokenAuthenticators holds the authenticators in the order in which they are called, and their
// background tasks.
type tokenAuthenticators struct {
	options *TokenOptions
	service *servicerunner.Service
	gates   *features.Gates
	union   authenticator.Union
	tasks   []task.Task
}

// buildAuthenticators returns the authenticators of all kinds of tokens that are turned on.
func (o *TokenOptions) buildAuthenticators(service *servicerunner.Service, gates *features.Gates) (*tokenAuthenticators, error) {
	authenticators := &tokenAuthenticators{options: o, service: service, gates: gates}
	lookups, err := authenticators.newObjects()
	if err != nil {
		return nil, err
	}
	constructors := []func(*objects.Objects) (authenticator.Token, error){authenticators.newFileAuthenticator,
		authenticators.newServiceAccountAuthenticator, authenticators.newBootstrapAuthenticator, authenticators.newJWTAuthenticator}
	for _, create := range constructors {
		token, err := create(lookups)
		if err != nil {
			return nil, err
		}
		if token != nil {
			authenticators.union = append(authenticators.union, token)
		}
	}
	if len(authenticators.union) == 0 {
		service.Log.Warn("no kind of token is configured, so every token is unknown")
	}
	return authenticators, nil
}

// newObjects returns the objects that tokens depend on, or nil if no kind of token needs any.
func (t *tokenAuthenticators) newObjects() (*objects.Objects, error) {
	config := objects.Config{
		Client:          t.service.Client,
		ServiceAccounts: len(t.options.ServiceAccounts.Issuers) > 0,
		BootstrapTokens: t.options.BootstrapTokens,
		Confirm:         t.options.ConfirmLookups,
		Logger:          t.service.Log,
	}
	if !config.ServiceAccounts && !config.BootstrapTokens {
		return nil, nil
	}
	found, err := objects.New(config)
	if err != nil {
		return nil, err
	}
	t.service.Health.Add("informer-sync", found.Check, health.Readyz)
	t.tasks = append(t.tasks, task.Task{Name: "watch objects of tokens", Run: found.Run})
	return found, nil
}

// newFileAuthenticator returns the authenticator of the tokens in --token-auth-file, or nil.
func (t *tokenAuthenticators) newFileAuthenticator(*objects.Objects) (authenticator.Token, error) {
	if t.options.File == "" {
		return nil, nil
	}
	tokens, warnings, err := tokenfile.Load(t.options.File)
	if err != nil {
		return nil, fmt.Errorf("--token-auth-file: %w", err)
	}
	for _, w := range warnings {
		t.service.Log.Warn("token file", "file", t.options.File, "warning", w)
	}
	return authenticator.ForAudiences(t.options.audiences(), tokens), nil
}

// newServiceAccountAuthenticator returns the authenticator of service account tokens, or nil.
func (t *tokenAuthenticators) newServiceAccountAuthenticator(lookups *objects.Objects) (authenticator.Token, error) {
	options := &t.options.ServiceAccounts
	if len(options.Issuers) == 0 {
		return nil, nil
	}
	keys, err := satoken.LoadPublicKeys(options.KeyFiles...)
	if err != nil {
		return nil, fmt.Errorf("--service-account-key-file: %w", err)
	}
	return satoken.New(satoken.Config{
		Issuers:   options.Issuers,
		Keys:      keys,
		Audiences: t.options.audiences(),
		Lookup:    options.Lookup,
		Objects:   lookups,
		Observe: satoken.CountUses(t.service.Metrics, satoken.UseValid, satoken.UseStale, satoken.UseLegacy,
			satoken.UseLegacyInvalid),
	})
}

// newBootstrapAuthenticator returns the authenticator of bootstrap tokens, or nil.
func (t *tokenAuthenticators) newBootstrapAuthenticator(lookups *objects.Objects) (authenticator.Token, error) {
	if !t.options.BootstrapTokens {
		return nil, nil
	}
	return authenticator.ForAudiences(t.options.audiences(), bootstraptoken.New(lookups, nil)), nil
}

// newJWTAuthenticator returns the authenticator of the authentication configuration, or nil.
func (t *tokenAuthenticators) newJWTAuthenticator(*objects.Objects) (authenticator.Token, error) {
	if !t.options.JWT.IsSet() {
		return nil, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("find the host's name: %w", err)
	}
	source, err := t.options.JWT.Source(authnconfig.Config{
		DisallowedIssuers: t.options.ServiceAccounts.Issuers,
		AnonymousFixed:    authnconfig.AnonymousGate(t.gates),
		Logger:            t.service.Log,
		Metrics:           authnconfig.NewMetrics(t.service.Metrics, host),
	})
	if err != nil {
		return nil, err
	}
	t.tasks = append(t.tasks, task.Task{Name: "issuers of tokens", Run: source.Run})
	return authenticator.ForAudiences(t.options.audiences(), source), nil
}
