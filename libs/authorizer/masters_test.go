package authorizer_test

import (
	"testing"

	"binnacle/libs/authorizer"
)

func TestMasters(t *testing.T) {
	for _, c := range []struct {
		user *authorizer.User
		want authorizer.Decision
	}{
		{nil, authorizer.NoOpinion},
		{&authorizer.User{Name: "system:masters", Groups: []string{"dev"}}, authorizer.NoOpinion},
		{&authorizer.User{Name: "a", Groups: []string{"dev", "system:masters"}}, authorizer.Allow},
	} {
		if d, _, err := (authorizer.SystemMasters{}).Authorize(t.Context(), &authorizer.Attributes{User: c.user}); d != c.want || err != nil {
			t.Errorf("%v: %v, %v", c.user, d, err)
		}
	}
}
