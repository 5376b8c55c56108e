package migrations_test

import (
	"io/fs"
	"strings"
	"testing"

	"better/compute/migrations"
)

func TestEachMigrationSaysWhatIsLostWithIt(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(migrations.FS, "*.down.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(file, ".down.sql"); migrations.Loses(name) == "" {
			t.Errorf("%s: add to losses what is lost when it is taken back", name)
		}
	}
}
