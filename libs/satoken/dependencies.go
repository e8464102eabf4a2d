package satoken

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"binnacle/libs/authenticator"
)

// Kind is the kind of an object that a token depends on.
type Kind string

// Kinds of objects.
const (
	KindServiceAccount Kind = "ServiceAccount"
	KindPod            Kind = "Pod"
	KindSecret         Kind = "Secret"
	KindNode           Kind = "Node"
)

// Object is an object that the validity of a token depends on. An empty UID matches any object with
// the name.
type Object struct {
	Kind            Kind
	Namespace, Name string
	UID             string
}

// UnverifiedClaims is what an unverified token claims: the objects that its validity depends on,
// and its latest expiry. It can only shorten the caching of a result, so it needs no verification.
type UnverifiedClaims struct {
	Objects []Object
	Expires time.Time // zero if absent
	// Legacy is the secret of a token of the older kind, and User the user name of its account.
	// Legacy is nil for other tokens.
	Legacy *Object
	User   string
}

// ParseUnverified parses a token. It returns an empty UnverifiedClaims for other values.
func ParseUnverified(token string) UnverifiedClaims {
	_, payloadAndSignature, ok := strings.Cut(token, ".")
	if !ok || len(token) > authenticator.MaxTokenBytes {
		return UnverifiedClaims{}
	}
	payload, _, ok := strings.Cut(payloadAndSignature, ".")
	if !ok {
		return UnverifiedClaims{}
	}
	raw, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return UnverifiedClaims{}
	}
	var claims Claims
	if json.Unmarshal(raw, &claims) != nil {
		return UnverifiedClaims{}
	}
	var unverifiedClaims UnverifiedClaims
	if claims.ExpiresAt != nil {
		unverifiedClaims.Expires = claims.ExpiresAt.Add(Leeway)
	}
	add := func(kind Kind, namespace string, ref *Ref) {
		if ref != nil && ref.Name != "" {
			unverifiedClaims.Objects = append(unverifiedClaims.Objects, Object{kind, namespace, ref.Name, ref.UID})
		}
	}
	if binding := claims.Binding; binding != nil {
		add(KindServiceAccount, binding.Namespace, &binding.ServiceAccount)
		add(KindSecret, binding.Namespace, binding.Secret)
		add(KindPod, binding.Namespace, binding.Pod)
		if binding.Pod == nil {
			add(KindNode, "", binding.Node)
		}
	}
	if claims.Issuer == LegacyIssuer {
		add(KindServiceAccount, claims.LegacyNamespace, &Ref{Name: claims.LegacyName, UID: claims.LegacyUID})
		add(KindSecret, claims.LegacyNamespace, &Ref{Name: claims.LegacySecretName})
		unverifiedClaims.Legacy = &Object{Kind: KindSecret, Namespace: claims.LegacyNamespace, Name: claims.LegacySecretName}
		unverifiedClaims.User = Username(claims.LegacyNamespace, claims.LegacyName)
	}
	return unverifiedClaims
}
