package libvirt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
)

const sector = 2048

// Where the parts of a seed are, in sectors. What is before the first is left to systems that boot from such disks.
const (
	descriptorAt = 16
	endAt        = 17
	tableAt      = 18 // least significant byte first
	bigTableAt   = 19 // most significant byte first
	rootAt       = 20
	filesAt      = 21
)

// seed makes the disk that cloud-init's NoCloud looks for: an ISO 9660 file system with the label cidata and two files.
func seed(userData, instanceID string) []byte {
	// Linux shows these names in small letters and without what is after the point.
	files := []struct{ name, text string }{
		{"META-DATA.;1", fmt.Sprintf("{\"instance-id\": %q}\n", instanceID)}, {"USER-DATA.;1", userData},
	}
	root := append(entry("\x00", rootAt, sector, true), entry("\x01", rootAt, sector, true)...)
	var contents bytes.Buffer
	for _, f := range files {
		root = append(root, entry(f.name, filesAt+contents.Len()/sector, len(f.text), false)...)
		contents.WriteString(f.text)
		contents.Write(make([]byte, -contents.Len()&(sector-1)))
	}
	disk := make([]byte, filesAt*sector, filesAt*sector+contents.Len())
	disk = append(disk, contents.Bytes()...)
	describe(disk[descriptorAt*sector:], len(disk)/sector)
	copy(disk[endAt*sector:], "\xffCD001\x01")
	copy(disk[tableAt*sector:], append([]byte{1, 0}, binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint32(nil, rootAt), 1)...))
	copy(disk[bigTableAt*sector:], append([]byte{1, 0}, binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(nil, rootAt), 1)...))
	copy(disk[rootAt*sector:], root)
	return disk
}

// describe writes the primary volume descriptor.
func describe(to []byte, sectors int) {
	const tableBytes = 10
	copy(to, "\x01CD001\x01\x00")
	copy(to[8:], strings.Repeat(" ", 32)+fmt.Sprintf("%-32s", "cidata"))
	copy(to[80:], both32(sectors))
	copy(to[120:], both16(1))
	copy(to[124:], both16(1))
	copy(to[128:], both16(sector))
	copy(to[132:], both32(tableBytes))
	binary.LittleEndian.PutUint32(to[140:], tableAt)
	binary.BigEndian.PutUint32(to[148:], bigTableAt)
	copy(to[156:], entry("\x00", rootAt, sector, true))
	copy(to[190:], strings.Repeat(" ", 813-190))
	for i := range 4 { // no dates
		copy(to[813+17*i:], strings.Repeat("0", 16))
	}
	to[881] = 1
}

// entry is a record of a directory. Names are short, and so it is.
func entry(name string, at, length int, directory bool) []byte {
	var flags byte
	if directory {
		flags = 2
	}
	record := make([]byte, 2, 64)
	record = append(record, both32(at)...)
	record = append(record, both32(length)...)
	record = append(record, 70, 1, 1, 0, 0, 0, 0, flags, 0, 0) // the first day of 1970
	record = append(record, both16(1)...)
	record = append(record, byte(len(name))) //nolint:gosec // 12 at most
	record = append(record, name...)
	if len(record)%2 == 1 {
		record = append(record, 0)
	}
	record[0] = byte(len(record)) //nolint:gosec // 46 at most
	return record
}

// both32 and both16 write a number in both orders of bytes.
func both32(n int) []byte {
	return binary.BigEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(n)), uint32(n)) //nolint:gosec // user data has some KB
}

func both16(n int) []byte {
	return binary.BigEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, uint16(n)), uint16(n)) //nolint:gosec // a sector at most
}
