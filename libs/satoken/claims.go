package satoken

import (
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/apimachinery/pkg/util/validation"

	"binnacle/libs/api"
)

// Names of the users and groups of service accounts.
const (
	userPrefix  = "system:serviceaccount:"
	groupAll    = "system:serviceaccounts"
	groupPrefix = groupAll + ":"
)

// Extra keys of the users of bound tokens.
const (
	extraPrefix = "authentication." + api.LabelDomain + "/"

	ExtraPodName  = extraPrefix + "pod-name"
	ExtraPodUID   = extraPrefix + "pod-uid"
	ExtraNodeName = extraPrefix + "node-name"
	ExtraNodeUID  = extraPrefix + "node-uid"
)

// LegacyIssuer is the issuer of tokens in secrets.
const LegacyIssuer = "kubernetes/serviceaccount"

// Username returns the user name of a service account.
func Username(namespace, name string) string { return userPrefix + namespace + ":" + name }

// Groups returns the groups of the service accounts in a namespace.
func Groups(namespace string) []string { return []string{groupAll, groupPrefix + namespace} }

// SplitUsername is the inverse of Username. It returns false for other user names, including those
// that no service account can have.
func SplitUsername(user string) (namespace, name string, ok bool) {
	namespacedName, ok := strings.CutPrefix(user, userPrefix)
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(namespacedName, ":")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "", "", false
	}
	return namespace, name, true
}

// Ref identifies an object at the time when the token was issued.
type Ref struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

// Binding holds the service account of a token, and the objects that it is bound to.
type Binding struct {
	Namespace      string `json:"namespace,omitempty"`
	ServiceAccount Ref    `json:"serviceaccount,omitempty"`
	Pod            *Ref   `json:"pod,omitempty"`
	Secret         *Ref   `json:"secret,omitempty"`
	Node           *Ref   `json:"node,omitempty"`
	// WarnAfter is when the client should have requested another token.
	WarnAfter *jwt.NumericDate `json:"warnafter,omitempty"`
}

// Claims are the claims of a token.
type Claims struct {
	jwt.RegisteredClaims
	Binding *Binding `json:"kubernetes.io,omitempty"`

	LegacyNamespace  string `json:"kubernetes.io/serviceaccount/namespace,omitempty"`
	LegacySecretName string `json:"kubernetes.io/serviceaccount/secret.name,omitempty"`
	LegacyName       string `json:"kubernetes.io/serviceaccount/service-account.name,omitempty"`
	LegacyUID        string `json:"kubernetes.io/serviceaccount/service-account.uid,omitempty"`
}

func numericDate(t time.Time) *jwt.NumericDate { return jwt.NewNumericDate(t) }
