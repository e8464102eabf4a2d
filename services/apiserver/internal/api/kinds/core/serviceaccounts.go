package core

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

const enforceMountableSecrets = "kubernetes.io/enforce-mountable-secrets"

// serviceAccounts declares the namespaced kind ServiceAccount.
func serviceAccounts() *registry.Kind {
	return declare.Kind[corev1.ServiceAccount, corev1.ServiceAccountList](&registry.Kind{
		Names: registry.Names{
			Version: version, Resource: "serviceaccounts", Kind: "ServiceAccount",
			ShortNames: []string{"sa"}, Namespaced: true,
		},
		Create: registry.Create{
			Prepare:  declare.Adapt(trimSecretReferences),
			Warnings: declare.AdaptResult(serviceAccountWarnings),
		},
		Update: registry.Update{
			Order:   registry.Order{registry.MetaUpdateRules, registry.MetaRules, registry.UpdateRules},
			Prepare: declare.AdaptUpdate(func(account, _ *corev1.ServiceAccount) { trimSecretReferences(account) }),
			Warnings: declare.AdaptUpdateResult(func(account, old *corev1.ServiceAccount) []string {
				if _, had := old.Annotations[enforceMountableSecrets]; had {
					return nil
				}
				return serviceAccountWarnings(account)
			}),
		},
		Delete: registry.Delete{ReturnObject: true},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			columns.New("Secrets", columns.String, "", columns.Doc(corev1.ServiceAccount{}, "secrets"), 0,
				func(account *corev1.ServiceAccount) any { return int64(len(account.Secrets)) }),
			columns.Age(),
		}},
		Subresources: []registry.Subresource{{
			Name:  "token",
			Verbs: []string{"create"},
			GVK:   authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"),
			New:   declare.New[authenticationv1.TokenRequest],
		}},
	})
}

// trimSecretReferences keeps only the names: the secrets are in the account's own namespace.
func trimSecretReferences(a *corev1.ServiceAccount) {
	for i := range a.Secrets {
		a.Secrets[i] = corev1.ObjectReference{Name: a.Secrets[i].Name}
	}
}

func serviceAccountWarnings(a *corev1.ServiceAccount) []string {
	if _, ok := a.Annotations[enforceMountableSecrets]; !ok {
		return nil
	}
	return []string{
		"metadata.annotations[" + enforceMountableSecrets + "]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets",
	}
}
