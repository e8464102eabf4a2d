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

func (p *parts) tokenFile() (authenticator.Token, error) {
	o := &p.options.Authentication
	if o.TokenFile == "" {
		return nil, nil
	}
	f, warnings, err := tokenfile.Load(o.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("--token-auth-file: %w", err)
	}
	for _, w := range warnings {
		p.log.Warn("token file", "file", o.TokenFile, "warning", w)
	}
	return authenticator.ForAudiences(o.Audiences, f), nil
}

func (p *parts) bootstrapTokens() (authenticator.Token, error) {
	o := &p.options.Authentication
	if !o.BootstrapTokens {
		return nil, nil
	}
	return authenticator.ForAudiences(o.Audiences, bootstraptoken.New(p.objects(false), nil)), nil
}

// jwtTokens returns the authenticator for the issuers of --oidc-issuer-url or
// --authentication-config.
func (p *parts) jwtTokens() (authenticator.Token, error) {
	o := &p.options.Authentication
	if !o.JWT.Given() {
		return nil, nil
	}
	// Cached reviews used the previous rules or keys.
	forget := func() { p.authn.reviews.Forget() }
	source, err := o.JWT.Source(authnconfig.Config{
		DisallowedIssuers: o.ServiceAccountIssuers, AnonymousFixed: p.anonymousFixed(),
		Reloaded: forget, Withdrawn: forget,
		Logger: p.log, Metrics: authnconfig.NewMetrics(p.metrics, p.base.address),
	})
	if err != nil {
		return nil, err
	}
	p.authn.jwt = source
	return authenticator.ForAudiences(o.Audiences, source), nil
}

// anonymousFixed returns why the configuration file must not configure anonymous requests; empty if
// it may.
func (p *parts) anonymousFixed() string {
	if p.options.Authentication.AnonymousGiven() {
		return "must not be set when the flag --anonymous-auth is given"
	}
	return authnconfig.AnonymousGate(p.options.Features)
}

func (p *parts) tokenWebhook() (authenticator.Token, error) {
	o := &p.options.Authentication
	if o.Webhook.Kubeconfig == "" {
		return nil, nil
	}
	c, err := webhook.New(webhook.Config{
		Logger:     p.log,
		Kubeconfig: o.Webhook.Kubeconfig, Version: o.Webhook.Version, Audiences: o.Audiences, Registerer: p.metrics, Calls: p.calls, Dial: p.egress.To(egress.ControlPlane),
	})
	if err != nil {
		return nil, fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
	}
	p.life.onClose(c.Close)
	return reviews.Shared(c), nil
}
