package certs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Secrets returns the files as Secrets, one for each program that deploy/manifests
// runs, in YAML. Each holds only what its program needs; no CA's key is in any.
func Secrets(l Layout) ([]byte, error) {
	ca := l.CA().Cert
	pairs := func(files []string, pairs ...Pair) []string {
		for _, p := range pairs {
			files = append(files, p.Cert, p.Key)
		}
		return files
	}
	type wanted struct {
		name  string
		files []string
	}
	all := []wanted{
		{"apiserver", pairs([]string{ca, l.ServiceAccountKey(), l.ServiceAccountPublicKey()}, l.APIServer(), l.WebhookClient(), l.EtcdClient(), l.NATSClient())},
		{"etcd", pairs([]string{ca}, l.Etcd())},
		{"nats", pairs([]string{ca}, l.NATS())},
	}
	for _, s := range Services() {
		w := wanted{s, pairs([]string{ca}, l.Serving(s), l.Client(s))}
		if s == "authn-webhook" {
			w.files = append(w.files, l.ServiceAccountPublicKey())
		}
		all = append(all, w)
	}
	var out bytes.Buffer
	for _, w := range all {
		secret := corev1.Secret{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Name: w.name + "-certs"},
			Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{},
		}
		for _, f := range w.files {
			data, err := os.ReadFile(f)
			if err != nil {
				return nil, fmt.Errorf("secret of %s: %w", w.name, err)
			}
			secret.Data[filepath.Base(f)] = data
		}
		text, err := yaml.Marshal(&secret)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.Bytes(), nil
}
