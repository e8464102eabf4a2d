package authzconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Group and kind of the file.
const (
	Group = "apiserver.config.k8s.io"
	Kind  = "AuthorizationConfiguration"
)

// Types of authorizers. A file may only contain Webhook, Node and RBAC.
const (
	AlwaysAllow = "AlwaysAllow"
	AlwaysDeny  = "AlwaysDeny"
	ABAC        = "ABAC"
	RBAC        = "RBAC"
	Node        = "Node"
	Webhook     = "Webhook"
)

// Values of fields.
const (
	PolicyNoOpinion = "NoOpinion"
	PolicyDeny      = "Deny"

	ConnectionFile      = "KubeConfigFile"
	ConnectionInCluster = "InClusterConfig"

	reviewV1, reviewV1beta1 = "v1", "v1beta1"
)

// Defaults and limits.
const (
	DefaultAuthorizedTTL   = 5 * time.Minute
	DefaultUnauthorizedTTL = 30 * time.Second
	MaxTimeout             = 30 * time.Second
	MaxMatchConditions     = 64
)

// Configuration is the ordered list of authorizers.
type Configuration struct {
	APIVersion  string       `json:"apiVersion"`
	Kind        string       `json:"kind"`
	Authorizers []Authorizer `json:"authorizers"`
}

// Authorizer configures one authorizer.
type Authorizer struct {
	Type    string         `json:"type"`
	Name    string         `json:"name"`
	Webhook *WebhookConfig `json:"webhook,omitempty"`
	// PolicyFile belongs to ABAC, which a file cannot contain.
	PolicyFile string `json:"-"`
}

// WebhookConfig configures the calls of a service.
type WebhookConfig struct {
	AuthorizedTTL                            Duration         `json:"authorizedTTL"`
	UnauthorizedTTL                          Duration         `json:"unauthorizedTTL"`
	Timeout                                  Duration         `json:"timeout"`
	SubjectAccessReviewVersion               string           `json:"subjectAccessReviewVersion"`
	MatchConditionSubjectAccessReviewVersion string           `json:"matchConditionSubjectAccessReviewVersion"`
	FailurePolicy                            string           `json:"failurePolicy"`
	ConnectionInfo                           ConnectionInfo   `json:"connectionInfo"`
	MatchConditions                          []MatchCondition `json:"matchConditions"`
}

// ConnectionInfo holds the address of a service.
type ConnectionInfo struct {
	Type           string  `json:"type"`
	KubeConfigFile *string `json:"kubeConfigFile"`
}

// MatchCondition is an expression over a request.
type MatchCondition struct {
	Expression string `json:"expression"`
}

// Duration is a duration in the form "5m0s".
type Duration struct{ time.Duration }

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var text string
	if err := yaml.Unmarshal(b, &text); err != nil {
		return err
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	d.Duration = v
	return nil
}

// Conditions validates the expressions of match conditions.
type Conditions interface {
	// Check returns an error if an expression is invalid.
	Check(expression string) error
}

// Parse parses and validates the content of a file.
func Parse(data []byte, conditions Conditions) (*Configuration, error) {
	configuration := &Configuration{}
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	strict, err := json.UnmarshalStrict(text, configuration)
	if err = errors.Join(append(strict, err)...); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	group, version, _ := strings.Cut(configuration.APIVersion, "/")
	if configuration.Kind != Kind || group != Group || version != "v1" && version != "v1beta1" && version != "v1alpha1" {
		return nil, fmt.Errorf("apiVersion %q, kind %q: want %s/v1 (v1beta1, v1alpha1), %s", configuration.APIVersion, configuration.Kind, Group, Kind)
	}
	configuration.setDefaults()
	if err := configuration.validate(conditions).ToAggregate(); err != nil {
		return nil, err
	}
	if err := configuration.checkNames(); err != nil {
		return nil, err
	}
	return configuration, nil
}

// setDefaults sets the defaults of webhooks.
func (c *Configuration) setDefaults() {
	for i := range c.Authorizers {
		webhook := c.Authorizers[i].Webhook
		if webhook == nil {
			continue
		}
		if webhook.AuthorizedTTL.Duration == 0 {
			webhook.AuthorizedTTL.Duration = DefaultAuthorizedTTL
		}
		if webhook.UnauthorizedTTL.Duration == 0 {
			webhook.UnauthorizedTTL.Duration = DefaultUnauthorizedTTL
		}
	}
}

// Has reports whether the configuration contains an authorizer of the given type.
func (c *Configuration) Has(kind string) bool {
	return slices.ContainsFunc(c.Authorizers, func(a Authorizer) bool { return a.Type == kind })
}

// Flags holds the values of the flags that a configuration file replaces.
type Flags struct {
	Modes                          []string
	PolicyFile                     string
	WebhookConfigFile              string
	WebhookVersion                 string
	AuthorizedTTL, UnauthorizedTTL time.Duration
}

// flagTimeout bounds a call of a webhook configured by flags.
const flagTimeout = 30 * time.Second

// FromFlags returns the configuration of validated flags.
func FromFlags(flags Flags) *Configuration {
	configuration := &Configuration{}
	for _, m := range flags.Modes {
		authorizer := Authorizer{Type: m, Name: requiredName(m)}
		switch m {
		case ABAC:
			authorizer.PolicyFile = flags.PolicyFile
		case Webhook:
			authorizer.Name = "default"
			authorizer.Webhook = &WebhookConfig{
				AuthorizedTTL:              Duration{flags.AuthorizedTTL},
				UnauthorizedTTL:            Duration{flags.UnauthorizedTTL},
				Timeout:                    Duration{flagTimeout},
				SubjectAccessReviewVersion: flags.WebhookVersion,
				FailurePolicy:              PolicyNoOpinion,
				ConnectionInfo:             ConnectionInfo{Type: ConnectionFile, KubeConfigFile: &flags.WebhookConfigFile},
			}
		}
		configuration.Authorizers = append(configuration.Authorizers, authorizer)
	}
	return configuration
}

// Validate returns the errors in the flags. Each names its flag.
func (f *Flags) Validate() (errs []error) {
	addError := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(f.Modes) == 0 {
		addError("--authorization-mode must name at least one mode")
	}
	seen := map[string]bool{}
	for _, m := range f.Modes {
		if !slices.Contains(Modes(), m) {
			addError("--authorization-mode: %q is not one of %v", m, Modes())
		}
		if seen[m] {
			addError("--authorization-mode: %q is given twice", m)
		}
		seen[m] = true
	}
	if seen[ABAC] != (f.PolicyFile != "") {
		addError("--authorization-mode %s and --authorization-policy-file go together", ABAC)
	}
	if seen[Webhook] != (f.WebhookConfigFile != "") {
		addError("--authorization-mode %s and --authorization-webhook-config-file go together", Webhook)
	}
	if f.WebhookVersion != reviewV1 && f.WebhookVersion != reviewV1beta1 {
		addError("--authorization-webhook-version: %q is neither v1 nor v1beta1", f.WebhookVersion)
	}
	if f.AuthorizedTTL < 0 || f.UnauthorizedTTL < 0 {
		addError("--authorization-webhook-cache-authorized-ttl and --authorization-webhook-cache-unauthorized-ttl must not be negative")
	}
	return errs
}

// Modes returns the values of --authorization-mode.
func Modes() []string { return []string{AlwaysAllow, AlwaysDeny, ABAC, Webhook, RBAC, Node} }
