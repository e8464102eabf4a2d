package authnconfig

import "binnacle/libs/api"

// The file's kind and the versions of it that are read. They have the same
// fields.
const (
	Kind     = "AuthenticationConfiguration"
	Group    = "apiserver.config." + api.Domain
	V1beta1  = Group + "/v1beta1"
	V1alpha1 = Group + "/v1alpha1"
)

// Configuration is the content of the file.
type Configuration struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	JWT        []JWT      `json:"jwt"`
	Anonymous  *Anonymous `json:"anonymous,omitempty"`
}

// JWT is an issuer of tokens and what its tokens mean.
type JWT struct {
	Issuer               Issuer                `json:"issuer"`
	ClaimValidationRules []ClaimValidationRule `json:"claimValidationRules,omitempty"`
	ClaimMappings        ClaimMappings         `json:"claimMappings"`
	UserValidationRules  []UserValidationRule  `json:"userValidationRules,omitempty"`
}

// Issuer says whose tokens, and for whom.
type Issuer struct {
	URL                  string   `json:"url"`
	DiscoveryURL         string   `json:"discoveryURL,omitempty"`
	CertificateAuthority string   `json:"certificateAuthority,omitempty"`
	Audiences            []string `json:"audiences"`
	AudienceMatchPolicy  string   `json:"audienceMatchPolicy,omitempty"`
}

// matchAny is the only audience match policy there is.
const matchAny = "MatchAny"

// ClaimValidationRule is a claim with the value that it must have, or an
// expression over the claims that must be true.
type ClaimValidationRule struct {
	Claim         string `json:"claim,omitempty"`
	RequiredValue string `json:"requiredValue,omitempty"`
	Expression    string `json:"expression,omitempty"`
	Message       string `json:"message,omitempty"`
}

// ClaimMappings say how a user is made of claims.
type ClaimMappings struct {
	Username PrefixedClaimOrExpression `json:"username"`
	Groups   PrefixedClaimOrExpression `json:"groups,omitzero"`
	UID      ClaimOrExpression         `json:"uid,omitzero"`
	Extra    []ExtraMapping            `json:"extra,omitempty"`
}

// PrefixedClaimOrExpression is a claim that is taken with a prefix, or an
// expression.
type PrefixedClaimOrExpression struct {
	Claim      string  `json:"claim,omitempty"`
	Prefix     *string `json:"prefix,omitempty"`
	Expression string  `json:"expression,omitempty"`
}

// ClaimOrExpression is a claim that is taken as it is, or an expression.
type ClaimOrExpression struct {
	Claim      string `json:"claim,omitempty"`
	Expression string `json:"expression,omitempty"`
}

// ExtraMapping gives the user an extra attribute.
type ExtraMapping struct {
	Key             string `json:"key"`
	ValueExpression string `json:"valueExpression"`
}

// UserValidationRule is an expression over the user that must be true.
type UserValidationRule struct {
	Expression string `json:"expression"`
	Message    string `json:"message,omitempty"`
}

// Anonymous says whether requests without credentials are served, and which.
type Anonymous struct {
	Enabled    bool                 `json:"enabled"`
	Conditions []AnonymousCondition `json:"conditions,omitempty"`
}

// AnonymousCondition is a path that may be asked for anonymously.
type AnonymousCondition struct {
	Path string `json:"path"`
}

// Allows tells whether a path may be asked for anonymously: one of those of the
// conditions, or any where there are none.
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
