package encryption_test

import (
	"bytes"
	"testing"

	"binnacle/services/apiserver/internal/storage"
)

// BenchmarkProviders encrypts and decrypts a value of the size of a secret with a certificate.
func BenchmarkProviders(b *testing.B) {
	value := append([]byte("k8s\x00"), bytes.Repeat([]byte("v"), 4<<10)...)
	for _, p := range allProviders(b) {
		s := newRawStore()
		store := s.storeWith(openConfig(b, rulesYAML(ruleYAML("secrets", p.configuration))))
		b.Run("create/"+p.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := store.Create(b.Context(), secretKey, value, storage.WriteOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("get/"+p.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := store.Get(b.Context(), secretKey, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
