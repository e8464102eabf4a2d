package authnconfig

import "binnacle/libs/api"

// The kind of the authentication configuration file and its supported versions, which have the same
// fields.
const (
	Kind     = "AuthenticationConfiguration"
	Group    = "apiserver.config." + api.Domain
	V1beta1  = Group + "/v1beta1"
	V1alpha1 = Group + "/v1alpha1"
)

// Configuration is the content of an authentication configuration file.
type Configuration struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	JWT        []JWT      `json:"jwt"`
	Anonymous  *Anonymous `json:"anonymous,omitempty"`
}

// JWT is an issuer of tokens with the rules for its tokens.
type JWT struct {
	Issuer               Issuer                `json:"issuer"`
	ClaimValidationRules []ClaimValidationRule `json:"claimValidationRules,omitempty"`
	ClaimMappings        ClaimMappings         `json:"claimMappings"`
	UserValidationRules  []UserValidationRule  `json:"userValidationRules,omitempty"`
}

// Issuer identifies an issuer and the audiences of its tokens.
type Issuer struct {
	URL                  string   `json:"url"`
	DiscoveryURL         string   `json:"discoveryURL,omitempty"`
	CertificateAuthority string   `json:"certificateAuthority,omitempty"`
	Audiences            []string `json:"audiences"`
	AudienceMatchPolicy  string   `json:"audienceMatchPolicy,omitempty"`
}

// matchAny is the only audience match policy.
const matchAny = "MatchAny"

// ClaimValidationRule is a claim with its required value, or an expression over the claims that
// must be true.
type ClaimValidationRule struct {
	Claim         string `json:"claim,omitempty"`
	RequiredValue string `json:"requiredValue,omitempty"`
	Expression    string `json:"expression,omitempty"`
	Message       string `json:"message,omitempty"`
}

// ClaimMappings map claims to a user.
type ClaimMappings struct {
	Username PrefixedClaimOrExpression `json:"username"`
	Groups   PrefixedClaimOrExpression `json:"groups,omitzero"`
	UID      ClaimOrExpression         `json:"uid,omitzero"`
	Extra    []ExtraMapping            `json:"extra,omitempty"`
}

// PrefixedClaimOrExpression is a claim with a prefix, or an expression.
type PrefixedClaimOrExpression struct {
	Claim      string  `json:"claim,omitempty"`
	Prefix     *string `json:"prefix,omitempty"`
	Expression string  `json:"expression,omitempty"`
}

// ClaimOrExpression is a claim without a prefix, or an expression.
type ClaimOrExpression struct {
	Claim      string `json:"claim,omitempty"`
	Expression string `json:"expression,omitempty"`
}

// ExtraMapping sets an extra attribute of the user.
type ExtraMapping struct {
	Key             string `json:"key"`
	ValueExpression string `json:"valueExpression"`
}

// UserValidationRule is an expression over the user that must be true.
type UserValidationRule struct {
	Expression string `json:"expression"`
	Message    string `json:"message,omitempty"`
}

// Anonymous configures anonymous requests.
type Anonymous struct {
	Enabled    bool                 `json:"enabled"`
	Conditions []AnonymousCondition `json:"conditions,omitempty"`
}

// AnonymousCondition is a path that allows anonymous requests.
type AnonymousCondition struct {
	Path string `json:"path"`
}

// Allows reports whether a path allows anonymous requests: it is one of the conditions, or there
// are none.
func (a *Anonymous) Allows(path string) bool {
	if !a.Enabled {
		return false
	}
	for _, c := range a.Conditions {
		if c.Path == path {
			return true
		}
	}
	return len(a.Conditions) == 0
}
