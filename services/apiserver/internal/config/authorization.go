package config

import (
	"fmt"
	"slices"
	"strings"

	"binnacle/libs/options"
	"binnacle/services/apiserver/internal/security/authz/authzconfig"
)

// AuthorizationOptions configure the authorizers.
type AuthorizationOptions struct {
	authzconfig.Flags
	// ConfigFile is the path of an AuthorizationConfiguration, which replaces Flags.
	ConfigFile string
	// flagsGiven returns the flags of Flags that were set; nil before addFlags.
	flagsGiven func() []string
}

func newAuthorizationOptions() AuthorizationOptions {
	return AuthorizationOptions{Flags: authzconfig.Flags{
		Modes:           []string{authzconfig.AlwaysAllow},
		WebhookVersion:  "v1beta1",
		AuthorizedTTL:   authzconfig.DefaultAuthorizedTTL,
		UnauthorizedTTL: authzconfig.DefaultUnauthorizedTTL,
	}}
}

func (o *AuthorizationOptions) addFlags(sections *options.Sections) {
	flagSet := sections.Set("authorization")
	flagSet.StringSliceVar(&o.Modes, "authorization-mode",
		o.Modes, "Ordered list of authorizers: "+strings.Join(authzconfig.Modes(), ", ")+".")
	flagSet.StringVar(&o.PolicyFile, "authorization-policy-file", "",
		"File with the policies of --authorization-mode=ABAC, one JSON object per line.")
	flagSet.StringVar(&o.WebhookConfigFile, "authorization-webhook-config-file",
		"", "Kubeconfig of the service of --authorization-mode=Webhook.")
	flagSet.StringVar(&o.WebhookVersion, "authorization-webhook-version", o.WebhookVersion,
		"API version of the SubjectAccessReview sent to the service: v1 or v1beta1.")
	flagSet.DurationVar(&o.AuthorizedTTL, "authorization-webhook-cache-authorized-ttl", o.AuthorizedTTL,
		"Time to cache 'allowed' responses of the webhook.")
	flagSet.DurationVar(&o.UnauthorizedTTL, "authorization-webhook-cache-unauthorized-ttl", o.UnauthorizedTTL,
		"Time to cache responses of the webhook that do not allow the request.")
	flagSet.StringVar(&o.ConfigFile, "authorization-config", "",
		"File with an AuthorizationConfiguration. The file is reloaded when it changes. Replaces --authorization-mode and the --authorization-webhook-* flags.")
	o.flagsGiven = func() (specified []string) {
		for _, name := range []string{
			"authorization-mode", "authorization-policy-file", "authorization-webhook-config-file", "authorization-webhook-version",
			"authorization-webhook-cache-authorized-ttl", "authorization-webhook-cache-unauthorized-ttl",
		} {
			if flagSet.Changed(name) {
				specified = append(specified, "--"+name)
			}
		}
		return specified
	}
}

func (o *AuthorizationOptions) validate() []error {
	if o.ConfigFile == "" {
		return o.Flags.Validate()
	}
	if o.flagsGiven != nil {
		if specified := o.flagsGiven(); len(specified) > 0 {
			return []error{fmt.Errorf("--authorization-config cannot be combined with %s", strings.Join(specified, ", "))}
		}
	}
	return nil
}

// allowsEverything reports whether the authorizer AlwaysAllow is enabled. A configuration file
// cannot enable it.
func (o *AuthorizationOptions) allowsEverything() bool {
	return o.ConfigFile == "" && slices.Contains(o.Modes, authzconfig.AlwaysAllow)
}

// mayAuthorizeNodes reports whether the Node authorizer or a webhook, which may treat nodes the
// same way, may be enabled. With a configuration file it returns true, because the file may enable
// one of them at any time.
func (o *AuthorizationOptions) mayAuthorizeNodes() bool {
	return o.ConfigFile != "" || slices.Contains(o.Modes, authzconfig.Node) || slices.Contains(o.Modes, authzconfig.Webhook)
}
