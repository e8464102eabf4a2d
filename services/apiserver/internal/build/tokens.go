package build

import (
	"fmt"

	"binnacle/libs/authenticator"
	"binnacle/libs/authnconfig"
	"binnacle/libs/bootstraptoken"
	"binnacle/libs/tokenfile"
	"binnacle/services/apiserver/internal/proxy/egress"
	"binnacle/services/apiserver/internal/security/authn/reviews"
	"binnacle/services/apiserver/internal/security/authn/webhook"
)

func (a *authentication) tokenFile() (authenticator.Token, error) {
	o := a.o
	if o.TokenFile == "" {
		return nil, nil
	}
	f, warnings, err := tokenfile.Load(o.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("--token-auth-file: %w", err)
	}
	for _, w := range warnings {
		a.log.Warn("token file", "file", o.TokenFile, "warning", w)
	}
	return authenticator.ForAudiences(o.Audiences, f), nil
}

func (a *authentication) bootstrapTokens() (authenticator.Token, error) {
	o := a.o
	if !o.BootstrapTokens {
		return nil, nil
	}
	return authenticator.ForAudiences(o.Audiences, bootstraptoken.New(a.caches.objects(false), nil)), nil
}

// jwtTokens returns the authenticator for the issuers of --oidc-issuer-url or
// --authentication-config.
func (a *authentication) jwtTokens() (authenticator.Token, error) {
	o := a.o
	if !o.JWT.Given() {
		return nil, nil
	}
	// Cached reviews used the previous rules or keys.
	forget := func() { a.reviews.Forget() }
	source, err := o.JWT.Source(authnconfig.Config{
		DisallowedIssuers: o.ServiceAccountIssuers, AnonymousFixed: a.anonymousFixed(),
		Reloaded: forget, Withdrawn: forget,
		Logger: a.log, Metrics: authnconfig.NewMetrics(a.metrics, a.address),
	})
	if err != nil {
		return nil, err
	}
	a.jwt = source
	return authenticator.ForAudiences(o.Audiences, source), nil
}

// anonymousFixed returns why the configuration file must not configure anonymous requests; empty if
// it may.
func (a *authentication) anonymousFixed() string {
	if a.o.AnonymousGiven() {
		return "must not be set when the flag --anonymous-auth is given"
	}
	return authnconfig.AnonymousGate(a.gates)
}

func (a *authentication) tokenWebhook() (authenticator.Token, error) {
	o := a.o
	if o.Webhook.Kubeconfig == "" {
		return nil, nil
	}
	c, err := webhook.New(webhook.Config{
		Logger:     a.log,
		Kubeconfig: o.Webhook.Kubeconfig, Version: o.Webhook.Version, Audiences: o.Audiences, Registerer: a.metrics, Calls: a.calls, Dial: a.egress.To(egress.ControlPlane),
	})
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
	}
	a.life.onClose(c.Close)
	return reviews.Shared(c, a.bounds.TokenReviews), nil
}
