package app

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// sideBySide is how many tests run at a time unless -parallel says otherwise. Most of
// them wait for a server, so there are more than processors.
const sideBySide = 8

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(sideBySide))
	}
	os.Exit(m.Run())
}
