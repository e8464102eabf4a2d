package core

import (
	"crypto/tls"
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

// secrets declares the namespaced kind Secret.
func secrets() *registry.Kind {
	return declare.Kind[corev1.Secret, corev1.SecretList](&registry.Kind{
		Names:          registry.Names{Version: version, Resource: "secrets", Kind: "Secret", Namespaced: true},
		Default:        declare.Adapt(defaultSecret),
		DefaultedRules: secretDefaultedRules,
		Create: registry.Create{
			Validate: declare.AdaptResult(validateSecret),
			Warnings: declare.AdaptResult(secretWarnings),
		},
		Update: registry.Update{
			Order:    registry.Order{registry.MetaUpdateRules, registry.UpdateRules, registry.MetaRules},
			Validate: declare.AdaptUpdateResult(validateSecretUpdate),
		},
		Presentation: registry.Presentation{
			Selectable: []registry.SelectableField{{Label: "type"}},
			Columns: []registry.Column{
				columns.Name(),
				columns.Text("Type", columns.Doc(corev1.Secret{}, "type"), func(s *corev1.Secret) string { return string(s.Type) }),
				columns.New("Data", columns.String, "", columns.Doc(corev1.Secret{}, "data"), 0,
					func(s *corev1.Secret) any { return int64(len(s.Data)) }),
				columns.Age(),
			},
		},
	})
}

// defaultSecret also moves the write-only stringData into data.
func defaultSecret(secret *corev1.Secret) {
	if secret.Type == "" {
		secret.Type = corev1.SecretTypeOpaque
	}
	if len(secret.StringData) > 0 && secret.Data == nil {
		secret.Data = make(map[string][]byte, len(secret.StringData))
	}
	for key, value := range secret.StringData {
		secret.Data[key] = []byte(value)
	}
	secret.StringData = nil
}

func validateSecret(secret *corev1.Secret) field.ErrorList {
	var errs field.ErrorList
	path, size := field.NewPath("data"), 0
	for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
		errs = append(errs, validateDataKey(path, key)...)
		size += len(secret.Data[key])
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(path, "", corev1.MaxSecretSize))
	}
	return append(errs, validateSecretType(secret, path)...)
}

// validateSecretType applies the rules of the standard secret types.
func validateSecretType(secret *corev1.Secret, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	require := func(present bool, key string) {
		if !present {
			errs = append(errs, field.Required(path.Key(key), ""))
		}
	}
	has := func(key string) bool { _, ok := secret.Data[key]; return ok }
	switch secret.Type {
	case corev1.SecretTypeServiceAccountToken:
		// A controller adds the other data, such as the token, later.
		if secret.Annotations[corev1.ServiceAccountNameKey] == "" {
			fldPath := field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey)
			errs = append(errs, field.Required(fldPath, ""))
		}
	case corev1.SecretTypeDockercfg:
		errs = append(errs, validateJSONKey(secret, path, corev1.DockerConfigKey)...)
	case corev1.SecretTypeDockerConfigJson:
		errs = append(errs, validateJSONKey(secret, path, corev1.DockerConfigJsonKey)...)
	case corev1.SecretTypeBasicAuth:
		if either := has(corev1.BasicAuthUsernameKey) || has(corev1.BasicAuthPasswordKey); !either {
			require(false, corev1.BasicAuthUsernameKey)
			require(false, corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		require(len(secret.Data[corev1.SSHAuthPrivateKey]) > 0, corev1.SSHAuthPrivateKey)
	case corev1.SecretTypeTLS:
		require(has(corev1.TLSCertKey), corev1.TLSCertKey)
		require(has(corev1.TLSPrivateKeyKey), corev1.TLSPrivateKeyKey)
	}
	return errs
}

// validateJSONKey requires a JSON object at a key. Its error does not contain the secret's data.
func validateJSONKey(s *corev1.Secret, path *field.Path, key string) field.ErrorList {
	data, ok := s.Data[key]
	if !ok {
		return field.ErrorList{field.Required(path.Key(key), "")}
	}
	if err := json.Unmarshal(data, &map[string]any{}); err != nil {
		return field.ErrorList{field.Invalid(path.Key(key), "<secret contents redacted>", err.Error())}
	}
	return nil
}

func validateSecretUpdate(secret, old *corev1.Secret) field.ErrorList {
	errs := validation.ValidateImmutableField(secret.Type, old.Type, field.NewPath("type"))
	errs = append(errs, validateImmutable(secret.Immutable, old.Immutable, []lockedField{
		{"data", !reflect.DeepEqual(secret.Data, old.Data)},
	})...)
	return append(errs, validateSecret(secret)...)
}

// secretWarnings returns a warning if a TLS key does not match its certificate.
func secretWarnings(secret *corev1.Secret) []string {
	if secret.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}
